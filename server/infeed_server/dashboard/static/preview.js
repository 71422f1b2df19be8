// The preview: a few samples of the selected pipeline, and what each transform makes of them.

import { getJson } from "./api.js";
import { byId, h, render, setText } from "./dom.js";
import * as format from "./format.js";

const NOTE = byId("preview-note").textContent;
const TIMEOUT_MS = 45000;
const BUSY_MS = 2100;
const TRIES = 5;

let lastTurn = Promise.resolve();
let endedAt = -Infinity;

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

// Asks for a preview when the ones before have ended: a server makes one every other second, and a
// browser logs each refusal.
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
      return await getJson(path, TIMEOUT_MS);
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
    render(byId("preview"));
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
    render(byId("preview"), samples.map(staged ? stripOf : sampleOf));
  }
}

// The texts of a sample: its id, position, values, and where it is.
function textsOf({ sample_id: id, position, values, file, offset }) {
  const at = offset === null ? "" : ` at byte ${format.count(offset)}`;
  return {
    id: id === null ? "empty slot" : `sample ${id}`,
    position: `position ${format.count(position)}`,
    values: Object.entries(values).map(([name, value]) => `${name} ${value}`).join(", "),
    file: file ? `${file.split("/").at(-1)}${at}` : "",
  };
}

function sampleOf(sample) {
  const { id, position, values, file } = textsOf(sample);
  return h("li", { title: sample.file ?? undefined }, h("figure", {},
    pictureOf(sample.image, `picture of ${id}`),
    h("figcaption", {}, h("b", {}, id), h("span", {}, position), h("span", {}, values),
      h("span", { class: "muted", "data-f": "file" }, file))));
}

function stripOf(sample) {
  const { id, position, values, file } = textsOf(sample);
  return h("li", {}, h("article", { class: "strip" },
    h("h3", {}, h("span", {}, id), h("span", { class: "muted" }, position), h("span", { class: "muted" }, values),
      h("span", { class: "muted", "data-f": "file", title: sample.file ?? undefined }, file)),
    h("p", { class: "key-text muted" }, h("code", { "data-f": "key" }, sample.key ? `key ${sample.key}` : ""),
      h("b", { "data-f": "sent" }, sample.is_sent === false ? "differs from the sample that was sent" : "")),
    h("ol", { "aria-label": `stages of ${id}`, tabindex: 0 }, stagesOf(sample.stages ?? [], id))));
}

// Describes the stages of a sample as items of a list.
export const stagesOf = (stages, title) => stages.map(({ stage, place, image, values, removed, error }) => {
  const cut = stage.indexOf("].") + 1;
  const [path, name] = cut ? [stage.slice(0, cut), stage.slice(cut + 1)] : ["", stage];
  return h("li", { class: !image && !error && "plain", "data-place": place, "data-failed": Boolean(error) },
    h("div", { class: "stage-name" }, h("b", { "data-f": "name" }, name),
      h("span", { class: "muted" }, path || (place === "trainer" ? "at the trainer" : ""))),
    pictureOf(image, `${title} after ${name}`),
    h("p", { class: "failure" }, error ?? ""),
    h("dl", {}, Object.entries(values).map(([field, text]) => [h("dt", {}, field), h("dd", {}, text)])),
    h("p", { class: "muted" }, removed.length ? `without ${removed.join(", ")}` : ""));
});

const pictureOf = (source, text) => (
  source ? h("img", { src: source, alt: text, decoding: "async" }) : h("span", { class: "no-picture" }, "no picture")
);
