// Requests to the API, each with a time limit, and a loop that slows down while it fails.

const TIMEOUT_MS = 5000;
const INTERVAL_MS = 1000;
const MAX_DELAY_MS = 15000;

// Returns the JSON of a path; throws an Error with a readable message.
export async function getJson(path, origin = "") {
  const response = await fetch(origin + path, {
    cache: "no-store",
    credentials: origin ? "omit" : "same-origin",
    headers: { accept: "application/json" },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (!response.ok) throw new Error(`${path} answers ${response.status}`);
  return response.json();
}

// Calls `work` once a second until it is stopped; after failures less and less often.
export class Poll {
  constructor(work, onFailure) {
    this.work = work;
    this.onFailure = onFailure;
    this.failures = 0;
    this.timer = null;
    this.running = false;
    this.busy = false;
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.#round();
  }

  stop() {
    this.running = false;
    clearTimeout(this.timer);
  }

  async #round() {
    clearTimeout(this.timer);
    if (this.busy) return;
    this.busy = true;
    const began = performance.now();
    try {
      await this.work();
      this.failures = 0;
    } catch (error) {
      this.failures += 1;
      this.onFailure(error, this.delay);
    }
    this.busy = false;
    if (this.running) {
      const spent = performance.now() - began;
      this.timer = setTimeout(() => this.#round(), Math.max(100, this.delay - spent));
    }
  }

  // Milliseconds between two rounds.
  get delay() {
    return Math.min(MAX_DELAY_MS, INTERVAL_MS * 2 ** this.failures);
  }
}
