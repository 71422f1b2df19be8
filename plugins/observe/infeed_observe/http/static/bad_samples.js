// Bad samples: the table of the last failures.

import { byId, h, render, setText, table } from "./dom.js";
import * as format from "./format.js";

// Returns the message without the sample, file and stage, which have columns of their own.
function reasonOf({ sample_id: id, stage, error }) {
  const mark = `): ${stage}: `;
  const at = error.indexOf(mark);
  return error.startsWith(`sample ${id} (`) && at > 0 ? error.slice(at + mark.length) : error;
}

// Allows line breaks after a path's slashes, without characters that a copy would contain.
const breakable = (path) => path.split(/(?<=\/)/).flatMap((part, index) => (index ? [h("wbr", {}), part] : [part]));

const placeOf = ({ file, offset }) => (
  file === null ? "–" : breakable(offset === null ? file : `${file} at byte ${format.count(offset)}`)
);

const COLUMNS = [
  ["time", "Time", "", ({ time }) => h("time", {}, format.clockTime(Date.parse(time) / 1000))],
  ["sample", "Sample", "row n", (each) => each.sample_id],
  ["count", "Times", "n", ({ count }) => format.count(count)],
  ["file", "File", "wide path-text", placeOf],
  ["epoch", "Epoch", "n", ({ epoch }) => format.count(epoch)],
  ["position", "Position", "n", ({ position }) => format.count(position)],
  ["stage", "Stage", "wide", ({ stage }) => stage?.replace(/\]\.|\+/g, "$&\u200b") ?? "–"],
  ["action", "Action", "", ({ action }) => action],
  ["reason", "Reason", "wide reason", reasonOf],
];

export function showBadSamples(pipeline, samples) {
  byId("bad-region").hidden = !samples.length;
  byId("no-bad").hidden = samples.length > 0;
  const total = pipeline.totals.bad_samples;
  setText(byId("no-bad"), total
    ? `${format.plural(total, "sample")} failed; this server keeps no details of them.`
    : "None since the start of this server.");
  render(byId("bad"), table(COLUMNS, samples, (each) => ({ key: each.sample_id })));
}
