// The preview: a few samples of the selected pipeline, and what each transform makes of them.

import { getJson } from "./api.js";
import { byId, clone, fill, setText } from "./dom.js";
import * as format from "./format.js";

const NOTE = byId("preview-note").textContent;
const TIMEOUT_MS = 45000;
const BUSY_MS = 2100;
const TRIES = 5;

let lastTurn = Promise.resolve();
let endedAt = -Infinity;

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

// Asks for a preview when the ones before have ended: a server makes one every other second.
export function getPreview(pipeline, parameters) {
  const turn = lastTurn.then(async () => {
    await sleep(Math.max(0, endedAt + BUSY_MS - performance.now()));
    try {
      return await request(pipeline, parameters);
    } finally {
      endedAt = performance.now();
    }
  });
  lastTurn = turn.catch(() => {});
  return turn;
}

// Another page may have just asked.
async function request(pipeline, parameters) {
  const query = new URLSearchParams(parameters);
  const path = `/api/v1/pipelines/${encodeURIComponent(pipeline)}/preview?${query}`;
  for (let left = TRIES; ; left -= 1) {
    try {
      return await getJson(path, "", TIMEOUT_MS);
    } catch (error) {
      if (error.status !== 429 || left <= 1) throw error;
    }
    await sleep(BUSY_MS);
  }
}

export class Preview {
  // `selected` returns the name of the selected pipeline.
  constructor(selected) {
    this.selected = selected;
    this.shownOf = null;
    this.request = 0;
    this.next = null;
    byId("preview-section").hidden = false;
    byId("preview-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#request(byId("preview-position").value);
    });
    byId("preview-next").addEventListener("click", () => this.#request(this.next));
  }

  // Clears the samples of another pipeline.
  show(name) {
    if (this.shownOf === null || this.shownOf === name) return;
    this.#clear(NOTE);
    byId("preview-position").value = "0";
  }

  async #request(text) {
    const pipeline = this.selected();
    const position = String(text).replace(/[\s,]/g, "") || "0";
    const request = (this.request += 1);
    const isCurrent = () => request === this.request && pipeline === this.selected();
    setText(byId("preview-note"), "Making the samples …");
    byId("preview").setAttribute("aria-busy", "true");
    try {
      const stages = byId("preview-stages").checked ? 1 : 0;
      const answer = await getPreview(pipeline, { position, stages });
      if (isCurrent()) this.#fill(pipeline, answer);
    } catch (error) {
      if (isCurrent()) this.#clear(`No samples: ${error.message}`);
    } finally {
      if (request === this.request) byId("preview").removeAttribute("aria-busy");
    }
  }

  #clear(note) {
    this.request += 1;
    setText(byId("preview-note"), note);
    byId("preview").replaceChildren();
    byId("preview-next").disabled = true;
    this.shownOf = null;
  }

  #fill(name, { seed, epoch, image_field: field, samples }) {
    this.shownOf = name;
    const last = samples.at(-1);
    this.next = last ? (BigInt(last.position) + 1n).toString() : null;
    byId("preview-next").disabled = !last;
    if (last) byId("preview-position").value = String(samples[0].position);
    setText(byId("preview-note"), `Seed ${seed}, epoch ${format.count(epoch)}${field ? `, field ${field}` : ", no pictures"}`);
    const staged = samples.some((each) => each.stages?.length);
    byId("preview").classList.toggle("strips", staged);
    byId("preview").replaceChildren(...samples.map(staged ? createStrip : createSample));
  }
}

const idOf = (sample) => (sample.sample_id === null ? "empty slot" : `sample ${sample.sample_id}`);

function origin(sample) {
  const offset = sample.offset === null ? "" : ` at byte ${format.count(sample.offset)}`;
  return sample.file ? `${sample.file.split("/").at(-1)}${offset}` : "";
}

const valuesOf = (values) => Object.entries(values).map(([name, value]) => `${name} ${value}`).join(", ");

function createSample(sample) {
  const node = clone("t-preview");
  showPicture(node.querySelector("img"), sample.image, `picture of ${idOf(sample)}`);
  fill(node, {
    sample: idOf(sample),
    position: `position ${format.count(sample.position)}`,
    values: valuesOf(sample.values),
    file: origin(sample),
  });
  if (sample.file) node.title = sample.file;
  return node;
}

function createStrip(sample) {
  const node = clone("t-strip");
  fill(node, {
    sample: idOf(sample),
    position: `position ${format.count(sample.position)}`,
    values: valuesOf(sample.values),
    file: origin(sample),
    key: sample.key ? `key ${sample.key}` : "",
    sent: sample.is_sent === false ? "differs from the sample that was sent" : "",
  });
  if (sample.file) node.querySelector('[data-f="file"]').title = sample.file;
  const list = node.querySelector("ol");
  list.setAttribute("aria-label", `stages of ${idOf(sample)}`);
  list.tabIndex = 0;
  list.append(...createStages(sample.stages ?? [], idOf(sample)));
  return node;
}

// The stages of a sample as items of a list.
export function createStages(stages, title) {
  return stages.map(({ stage, place, image, values, removed, error }) => {
    const node = clone("t-sample-stage");
    const [path, name] = stage.includes("].") ? stage.split("].", 2).map((each, n) => (n ? each : `${each}]`)) : ["", stage];
    showPicture(node.querySelector("img"), image, `${title} after ${name}`);
    node.classList.toggle("plain", !image && !error);
    node.dataset.place = place;
    node.dataset.failed = Boolean(error);
    fill(node, {
      name,
      path: path || (place === "trainer" ? "at the trainer" : ""),
      error: error ?? "",
      removed: removed.length ? `without ${removed.join(", ")}` : "",
    });
    node.querySelector("dl").append(...Object.entries(values).flatMap(([field, text]) => {
      const [term, value] = [document.createElement("dt"), document.createElement("dd")];
      setText(term, field);
      setText(value, text);
      return [term, value];
    }));
    return node;
  });
}

function showPicture(image, source, text) {
  if (!source) {
    const none = document.createElement("span");
    none.className = "no-picture";
    none.textContent = "no picture";
    image.replaceWith(none);
    return;
  }
  image.src = source;
  image.alt = text;
}
