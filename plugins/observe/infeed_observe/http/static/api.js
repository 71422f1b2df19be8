// Requests to the API, each with a time limit, and a loop that slows down while it fails.

const TIMEOUT_MS = 5000;
const INTERVAL_MS = 1000;
const MAX_DELAY_MS = 15000;

// Returns the JSON of a path; throws a `RequestError`.
export async function getJson(path, timeout = TIMEOUT_MS) {
  let response;
  let text;
  try {
    // Not a relative path: the page's address may contain a name and a password.
    response = await fetch(location.origin + path, {
      cache: "no-store",
      headers: { accept: "application/json" },
      signal: AbortSignal.timeout(timeout),
    });
    text = await response.text();
  } catch {
    throw new RequestError("no connection");
  }
  let document;
  try {
    document = parse(text);
  } catch {
    throw new RequestError("a response that is not JSON", response.status);
  }
  if (response.ok) return document;
  throw new RequestError(document?.error ?? `status ${response.status}`, response.status);
}

export class RequestError extends Error {
  // `status` is the response's; null without a response.
  constructor(message, status = null) {
    super(message);
    this.status = status;
  }
}

// Keeps integers that a browser's numbers would round as text.
export function parse(text) {
  return JSON.parse(text, (_, value, context) => {
    const isRounded = typeof value === "number" && !Number.isSafeInteger(value);
    return isRounded && /^-?\d+$/.test(context?.source ?? "") ? context.source : value;
  });
}

// Calls `work` once a second while `isWanted` is true, and less often after each failure.
export class Poll {
  #failures = 0;
  #timer = null;
  #busy = false;

  constructor(work, isWanted, onFailure) {
    Object.assign(this, { work, isWanted, onFailure });
  }

  // Calls `work` at once; call it also when `isWanted` becomes true again.
  async round() {
    clearTimeout(this.#timer);
    if (this.#busy || !this.isWanted()) return;
    this.#busy = true;
    const began = performance.now();
    try {
      await this.work();
      this.#failures = 0;
    } catch (error) {
      this.#failures += 1;
      this.onFailure(error, this.#delay);
    }
    this.#busy = false;
    this.#timer = setTimeout(() => this.round(), Math.max(100, began + this.#delay - performance.now()));
  }

  // Milliseconds between two rounds.
  get #delay() {
    return Math.min(MAX_DELAY_MS, INTERVAL_MS * 2 ** this.#failures);
  }
}
