// The preview: a few samples of the selected pipeline.

import { getJson } from "./api.js";
import { byId, h, render, setText } from "./dom.js";
import * as format from "./format.js";

const NOTE = byId("preview-note").textContent;
const TIMEOUT_MS = 45000;
const BUSY_MS = 2100;
const TRIES = 5;

// Retries while the server is busy: it makes a preview every two seconds at most.
async function getPreview(pipeline, position) {
  const path = `/api/v1/pipelines/${encodeURIComponent(pipeline)}/preview?position=${encodeURIComponent(position)}`;
  for (let left = TRIES; ; left -= 1) {
    try {
      return await getJson(path, TIMEOUT_MS);
    } catch (error) {
      if (error.status !== 429 || left <= 1) throw error;
    }
    await new Promise((done) => { setTimeout(done, BUSY_MS); });
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
      const answer = await getPreview(pipeline, position);
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
    render(byId("preview"), samples.map(sampleOf));
  }
}

function sampleOf({ sample_id: id, position, image, values, file, offset }) {
  const name = id === null ? "empty slot" : `sample ${id}`;
  const at = offset === null ? "" : ` at byte ${format.count(offset)}`;
  return h("li", { title: file ?? undefined }, h("figure", {},
    image ? h("img", { src: image, alt: `picture of ${name}`, decoding: "async" }) : h("span", { class: "muted" }, "no picture"),
    h("figcaption", {}, h("b", {}, name), h("span", {}, `position ${format.count(position)}`),
      h("span", {}, Object.entries(values).map(([field, value]) => `${field} ${value}`).join(", ")),
      h("span", { class: "muted", "data-f": "file" }, file ? `${file.split("/").at(-1)}${at}` : ""))));
}
