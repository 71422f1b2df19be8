// The verdict: the same line as in stats, load test and API, with its parts set apart.

import { byId, h, icon, render, setAttribute, setText } from "./dom.js";
import { percent } from "./format.js";

export const LEVELS = {
  "not input-bound": { key: "good", icon: "i-good" },
  "moderately input-bound": { key: "moderate", icon: "i-moderate" },
  "highly input-bound": { key: "high", icon: "i-high" },
  unknown: { key: "unknown", icon: "i-unknown" },
};

export const levelOf = (verdict) => LEVELS[verdict.level] ?? LEVELS.unknown;

// Splits the line at its marks; joined, the parts make the line again.
function parts(verdict) {
  const rest = [];
  let line = verdict.text;
  const cut = (mark, kind) => {
    const at = line.indexOf(mark);
    if (at < 0) return;
    rest.unshift([kind, line.slice(at)]);
    line = line.slice(0, at);
  };
  if (verdict.cause) {
    cut("; first: ", "advice");
    const cause = `; cause: ${verdict.cause} (${verdict.detail})`;
    const at = line.indexOf(cause);
    if (at >= 0) {
      const after = line.slice(at + cause.length);
      if (after) rest.unshift(["servers", after]);
      rest.unshift(["cause", cause]);
      line = line.slice(0, at);
    }
  }
  const colon = line.indexOf(": ");
  if (colon < 0) return [["level", line], ...rest];
  return [["level", line.slice(0, colon)], ["who", line.slice(colon)], ...rest];
}

let announced = "";

// Shows the verdict; returns the name of its pipeline, or null.
export function showVerdict(status) {
  const { verdict } = status;
  const { key, icon: symbol } = levelOf(verdict);
  const found = origin(status);
  setAttribute(byId("verdict"), "data-level", key);
  render(byId("verdict-icon"), icon(symbol));
  render(byId("verdict-line"), parts(verdict).map(([kind, text]) => {
    // The separator is in the text but invisible: each part has its own line.
    const [separator] = /^[;:]? */.exec(text);
    return h("span", { class: kind }, h("i", {}, separator), h("span", {}, text.slice(separator.length)));
  }));
  setText(byId("scale-share"), percent(verdict.wait_share, 1));
  setAttribute(byId("scale-mark"), "x", (992 * Math.min(1, verdict.wait_share)).toFixed(1));
  setText(byId("verdict-of"), found ? `${found.pipeline}, job ${found.job}` : "");
  document.title = key === "unknown" ? "infeed" : `${verdict.level}: infeed`;
  // Announced only when the level or the cause changes: figures change every second.
  const spoken = verdict.cause ? `${verdict.level}, cause: ${verdict.cause}` : verdict.level;
  if (announced && spoken !== announced) setText(byId("announcer"), `The training is ${spoken}`);
  announced = spoken;
  return found?.pipeline ?? null;
}

// Returns the job and the pipeline of the verdict.
function origin(status) {
  for (const pipeline of status.pipelines) {
    const job = pipeline.jobs.find((each) => each.verdict.text === status.verdict.text);
    if (job) return { pipeline: pipeline.name, job: job.id };
  }
  return null;
}
