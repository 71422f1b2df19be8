// The preview: a few samples of the selected pipeline, made when a button is pressed.

import { byId, clone, fill, setText } from "./dom.js";
import * as format from "./format.js";

const NOTE = byId("preview-note").textContent;

export class Preview {
  // `selected` returns the name of the selected pipeline.
  constructor(selected) {
    this.selected = selected;
    this.shownOf = null;
    this.next = null;
    byId("preview-section").hidden = false;
    byId("preview-show").addEventListener("click", () => this.#request(byId("preview-position").value));
    byId("preview-next").addEventListener("click", () => this.#request(this.next));
    byId("preview-position").addEventListener("keydown", ({ key }) => {
      if (key === "Enter") byId("preview-show").click();
    });
  }

  // Clears the samples of another pipeline.
  show(name) {
    if (this.shownOf === null || this.shownOf === name) return;
    this.#clear(NOTE);
    byId("preview-position").value = "0";
  }

  async #request(position) {
    const name = this.selected();
    const query = encodeURIComponent(String(position).replace(/[\s,]/g, ""));
    setText(byId("preview-note"), "making the samples");
    try {
      const path = `/api/v1/pipelines/${encodeURIComponent(name)}/preview?position=${query}`;
      const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(30000) });
      const answer = await response.json();
      if (name !== this.selected()) return;
      if (!response.ok) this.#clear(answer.error);
      else this.#fill(name, answer);
    } catch {
      this.#clear("no answer from the server");
    }
  }

  #clear(note) {
    setText(byId("preview-note"), note);
    byId("preview").replaceChildren();
    byId("preview-next").disabled = true;
    this.shownOf = null;
  }

  #fill(name, { seed, epoch, image_field: field, samples }) {
    this.shownOf = name;
    this.next = samples.at(-1).position + 1;
    byId("preview-position").value = String(samples[0].position);
    byId("preview-next").disabled = false;
    setText(byId("preview-note"), `Seed ${seed}, epoch ${epoch}${field ? `, field ${field}` : ", no pictures"}`);
    byId("preview").replaceChildren(...samples.map(createSample));
  }
}

function createSample(sample) {
  const node = clone("t-preview");
  const image = node.querySelector("img");
  const id = sample.sample_id === null ? "empty slot" : `sample ${sample.sample_id}`;
  if (sample.image) {
    image.src = sample.image;
    image.alt = `picture of ${id}`;
  } else image.remove();
  const values = Object.entries(sample.values).map(([name, value]) => `${name} ${value}`).join(", ");
  const offset = sample.offset === null ? "" : ` at byte ${format.count(sample.offset)}`;
  fill(node, {
    sample: id,
    position: `position ${format.count(sample.position)}`,
    values,
    file: sample.file ? `${sample.file.split("/").at(-1)}${offset}` : "",
  });
  if (sample.file) node.title = sample.file;
  return node;
}
