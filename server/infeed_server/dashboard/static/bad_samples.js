// Bad samples: the table of the last failures, their pictures, and what each transform made of one.

import { byId, clone, fill, reconcile, setPath, setText } from "./dom.js";
import * as format from "./format.js";
import { createStages, getPreview } from "./preview.js";

const MAX_PICTURES = 12;
const INTERVAL_MS = 2500;
const TRIES = 2;

// Returns the message without the sample, file and stage, which have columns of their own.
function reasonOf({ sample_id: id, stage, error }) {
  const mark = `): ${stage}: `;
  const at = error.indexOf(mark);
  return error.startsWith(`sample ${id} (`) && at > 0 ? error.slice(at + mark.length) : error;
}

const keyOf = (each) => each.sample_id;

function show(samples, total, pictureOf, open) {
  byId("bad-region").hidden = !samples.length;
  const none = byId("no-bad");
  none.hidden = samples.length > 0;
  setText(none, total
    ? `${format.plural(total, "sample")} failed; this server keeps no details of them.`
    : "None since the start of this server.");
  const create = (each) => {
    const row = clone("t-bad");
    setText(row.querySelector(".thumb .hidden"), `stages of sample ${each.sample_id}`);
    return row;
  };
  reconcile(byId("bad"), samples, keyOf, create, (row, each) => {
    const thumb = row.querySelector(".thumb");
    thumb.onclick = () => open(each);  // with the key of the last failure
    showThumb(thumb, pictureOf(each));
    const offset = each.offset === null ? "" : ` at byte ${format.count(each.offset)}`;
    setPath(row.querySelector(".path-text"), each.file === null ? "–" : `${each.file}${offset}`);
    fill(row, {
      time: format.clockTime(Date.parse(each.time) / 1000),
      sample: each.sample_id,
      count: format.count(each.count),
      epoch: format.count(each.epoch),
      position: format.count(each.position),
      stage: each.stage?.replace(/\]\.|\+/g, "$&\u200b") ?? "–",
      action: each.action,
      reason: reasonOf(each),
    });
  });
}

function showThumb(button, picture) {
  const part = button.firstElementChild;
  if (!picture || (part.tagName === "IMG" && part.src === picture)) return;
  if (picture === "none") {
    setText(part, "none");
    return;
  }
  const image = document.createElement("img");
  image.src = picture;
  image.alt = "";
  part.replaceWith(image);
}

export class BadSamples {
  // `hasPreviews`: whether the server makes samples for the page.
  constructor(hasPreviews) {
    this.hasPreviews = hasPreviews;
    this.made = new Map();
    this.pictures = new Map();
    this.failures = new Map();
    this.samples = [];
    this.pipeline = null;
    this.isSeen = false;
    this.timer = null;
    byId("bad-region").classList.toggle("without-pictures", !hasPreviews);
    byId("bad-close").addEventListener("click", () => {
      byId("bad-detail").hidden = true;
      this.opener?.focus();
    });
    new IntersectionObserver(([entry]) => {
      this.isSeen = entry.isIntersecting;
    }).observe(byId("bad-region"));
  }

  start() { if (this.hasPreviews) this.timer ??= setInterval(() => this.#makeOne(), INTERVAL_MS); }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
  }

  show(pipeline, samples) {
    if (pipeline.name !== this.pipeline) byId("bad-detail").hidden = true;
    this.pipeline = pipeline.name;
    this.samples = samples;
    show(samples, pipeline.totals.bad_samples, (each) => this.#picture(each), (each) => this.#open(each));
  }

  #id(sample) { return `${this.pipeline} ${sample.sample_id} ${sample.key}`; }

  #name(sample) { return `${this.pipeline} ${sample.sample_id}`; }

  // One for a sample, also where it failed under several keys.
  #picture(sample) { return this.pictures.get(this.#name(sample)); }

  // Makes the picture of one of the newest samples, while they can be seen.
  async #makeOne() {
    if (!this.isSeen || this.busy) return;
    const newest = this.samples.filter((each) => each.key).slice(0, MAX_PICTURES);
    const next = newest.find((each) => !this.#picture(each));
    if (next) await this.#make(next).catch(() => this.#onFailure(next));
  }

  // A busy server may fail once.
  #onFailure(sample) {
    const name = this.#name(sample);
    const count = (this.failures.get(name) ?? 0) + 1;
    this.failures.set(name, count);
    if (count >= TRIES) this.pictures.set(name, "none");
  }

  async #make(sample) {
    const id = this.#id(sample);
    if (!this.made.has(id)) {
      this.busy = true;
      try {
        const { stages } = await getPreview(this.pipeline, { sample_id: sample.sample_id, key: sample.key });
        this.made.set(id, stages);
        this.pictures.set(this.#name(sample), stages.findLast((each) => each.image)?.image ?? "none");
      } finally {
        this.busy = false;
      }
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
    byId("bad-stages").replaceChildren();
    detail.hidden = false;
    detail.focus();
    try {
      const stages = await this.#make(sample);
      setText(byId("bad-detail-title"), `${title}, up to the transform that fails`);
      byId("bad-stages").replaceChildren(...createStages(stages, title));
    } catch (error) {
      setText(byId("bad-detail-title"), `${title}: ${error.message}`);
    }
  }
}
