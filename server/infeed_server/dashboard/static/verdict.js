// The verdict: the line that stats, load test and API have, with its parts set apart.

import { byId, fill, setAttribute, setIcon, setText } from "./dom.js";
import { percent } from "./format.js";

export const LEVELS = {
  "not input-bound": { key: "good", icon: "i-good" },
  "moderately input-bound": { key: "moderate", icon: "i-moderate" },
  "highly input-bound": { key: "high", icon: "i-high" },
  unknown: { key: "unknown", icon: "i-unknown" },
};

export const levelOf = (verdict) => LEVELS[verdict.level] ?? LEVELS.unknown;

// Splits the line at its marks; the parts joined are the line again.
export function parts(verdict) {
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

// Shows the verdict, and returns the name of its pipeline, or null.
export function showVerdict(status) {
  const { verdict } = status;
  const { key, icon } = levelOf(verdict);
  const box = byId("verdict");
  setAttribute(box, "data-level", key);
  setIcon(box, "icon", icon);
  showLine(byId("verdict-line"), verdict);
  fill(byId("scale"), { share: percent(verdict.wait_share, 1) });
  setAttribute(byId("scale-mark"), "x", (992 * Math.min(1, verdict.wait_share)).toFixed(1));
  document.title = key === "unknown" ? "infeed" : `${verdict.level}: infeed`;
  const found = origin(status);
  setText(byId("verdict-of"), found ? `${found.pipeline}, job ${found.job}` : "");
  // Only when the word or the cause changes: figures change every second.
  const spoken = verdict.cause ? `${verdict.level}, cause: ${verdict.cause}` : verdict.level;
  if (spoken !== announced) {
    if (announced) setText(byId("announcer"), `The training is ${spoken}`);
    announced = spoken;
  }
  return found?.pipeline ?? null;
}

function showLine(line, verdict) {
  const wanted = parts(verdict);
  const same = line.children.length === wanted.length
    && wanted.every(([kind], index) => line.children[index].className === kind);
  if (!same) {
    line.replaceChildren(...wanted.map(([kind]) => {
      const part = document.createElement("span");
      part.className = kind;
      part.append(document.createElement("i"), document.createElement("span"));
      return part;
    }));
  }
  wanted.forEach(([, text], index) => {
    // The separator is in the text, but not seen: each part has a line of its own.
    const [separator] = /^[;:]? */.exec(text);
    setText(line.children[index].firstElementChild, separator);
    setText(line.children[index].lastElementChild, text.slice(separator.length));
  });
}

// Which job of which pipeline the verdict is about.
function origin(status) {
  for (const pipeline of status.pipelines) {
    for (const job of pipeline.jobs) {
      if (job.verdict.text === status.verdict.text) return { pipeline: pipeline.name, job: job.id };
    }
  }
  return null;
}
