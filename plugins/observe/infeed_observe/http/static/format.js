// Figures as text. Null and undefined are a dash.

const NONE = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Three significant digits, at most; thousands are grouped.
export function number(value) {
  if (!isNumber(value)) return NONE;
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: value % 1 ? digits : 0 });
}

// An integer; one that a browser's numbers would round is text.
export function count(value) {
  if (typeof value === "string" && /^-?\d+$/.test(value)) return BigInt(value).toLocaleString("en");
  return isNumber(value) ? Math.round(value).toLocaleString("en") : NONE;
}

export function percent(share, digits = 0) {
  return isNumber(share) ? `${(100 * share).toFixed(digits)} %` : NONE;
}

export function seconds(value) {
  if (!isNumber(value)) return NONE;
  if (value === 0) return "0 ms";
  if (value < 1e-3) return `${number(value * 1e6)} µs`;
  if (value < 1) return `${number(value * 1e3)} ms`;
  return `${number(value)} s`;
}

export function duration(value) {
  if (!isNumber(value)) return NONE;
  const whole = Math.floor(value);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return twoUnits(whole, 60, "min", 1, "s");
  if (whole < 86400) return twoUnits(whole, 3600, "h", 60, "min");
  return twoUnits(whole, 86400, "d", 3600, "h");
}

function twoUnits(seconds, large, largeName, small, smallName) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(value) {
  if (!isNumber(value)) return NONE;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${number(value)} ${UNITS[unit]}`;
}

export const byteRate = (value) => (isNumber(value) ? `${bytes(value)}/s` : NONE);

export function clockTime(unixSeconds) {
  return new Date(unixSeconds * 1000).toLocaleTimeString("en-GB");
}

export function plural(value, noun, nouns = `${noun}s`) {
  return isNumber(value) ? `${count(value)} ${value === 1 ? noun : nouns}` : NONE;
}
