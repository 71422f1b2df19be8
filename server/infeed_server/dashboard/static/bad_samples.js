// Bad samples: the table of the last failures, their pictures, and what each transform made of one.

import { byId, h, render, setText, table } from "./dom.js";
import * as format from "./format.js";
import { getPreview, stagesOf } from "./preview.js";

const MAX_PICTURES = 12;

// Returns the message without the sample, file and stage, which have columns of their own.
function reasonOf({ sample_id: id, stage, error }) {
  const mark = `): ${stage}: `;
  const at = error.indexOf(mark);
  return error.startsWith(`sample ${id} (`) && at > 0 ? error.slice(at + mark.length) : error;
}

// A path may break behind its slashes; a copy of it has no other characters.
const breakable = (path) => path.split(/(?<=\/)/).flatMap((part, index) => (index ? [h("wbr", {}), part] : [part]));

const placeOf = ({ file, offset }) => (
  file === null ? "–" : breakable(offset === null ? file : `${file} at byte ${format.count(offset)}`)
);

const COLUMNS = (pictureOf, open) => [
  ["picture", "Picture", "picture", (each) => h("button", {
    type: "button", class: "thumb", onclick: () => open(each),
  }, thumb(pictureOf(each)), h("span", { class: "hidden" }, `stages of sample ${each.sample_id}`))],
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

const thumb = (picture) => (picture && picture !== "none"
  ? h("img", { src: picture, alt: "" }) : h("span", { class: "no-picture" }, picture ?? "…"));

export class BadSamples {
  static INTERVAL_MS = 2500;

  // `hasPreviews`: whether the server makes samples for the page.
  constructor(hasPreviews) {
    this.made = new Map();
    this.pictures = new Map();
    this.samples = [];
    this.isSeen = false;
    byId("bad-region").classList.toggle("without-pictures", !hasPreviews);
    byId("bad-close").addEventListener("click", () => {
      byId("bad-detail").hidden = true;
      this.opener?.focus();
    });
    new IntersectionObserver(([entry]) => {
      this.isSeen = entry.isIntersecting;
    }).observe(byId("bad-region"));
  }

  show(pipeline, samples) {
    if (pipeline.name !== this.pipeline) byId("bad-detail").hidden = true;
    this.pipeline = pipeline.name;
    this.samples = samples;
    byId("bad-region").hidden = !samples.length;
    byId("no-bad").hidden = samples.length > 0;
    const total = pipeline.totals.bad_samples;
    setText(byId("no-bad"), total
      ? `${format.plural(total, "sample")} failed; this server keeps no details of them.`
      : "None since the start of this server.");
    const pictureOf = (each) => this.pictures.get(this.#name(each));
    const columns = COLUMNS(pictureOf, (each) => this.#open(each));
    render(byId("bad"), table(columns, samples, (each) => ({ key: each.sample_id })));
  }

  // A sample has one picture, also where it failed under several keys.
  #name(sample) { return `${this.pipeline} ${sample.sample_id}`; }

  // Makes the picture of one of the newest samples, while they can be seen.
  async makeOne() {
    const newest = this.samples.filter((each) => each.key).slice(0, MAX_PICTURES);
    const next = newest.find((each) => !this.pictures.has(this.#name(each)));
    if (!next || !this.isSeen || this.busy) return;
    this.busy = true;
    const name = this.#name(next);
    await this.#make(next).catch(() => this.pictures.set(name, "none"));
    this.busy = false;
  }

  async #make(sample) {
    const [name, id] = [this.#name(sample), `${this.#name(sample)} ${sample.key}`];
    if (!this.made.has(id)) {
      const { stages } = await getPreview(this.pipeline, { sample_id: sample.sample_id, key: sample.key });
      this.made.set(id, stages);
      this.pictures.set(name, stages.findLast((each) => each.image)?.image ?? "none");
    }
    return this.made.get(id);
  }

  // Shows the stages of a sample below the table.
  async #open(sample) {
    this.opener = document.activeElement;
    const detail = byId("bad-detail");
    const title = `Sample ${sample.sample_id}`;
    setText(byId("bad-detail-title"), title);
    setText(byId("bad-detail-key"), sample.key ? `key ${sample.key}` : "");
    render(byId("bad-stages"));
    detail.hidden = false;
    detail.focus();
    try {
      const stages = await this.#make(sample);
      setText(byId("bad-detail-title"), `${title}, up to the transform that fails`);
      render(byId("bad-stages"), stagesOf(stages, title));
    } catch (error) {
      setText(byId("bad-detail-title"), `${title}: ${error.message}`);
    }
  }
}
