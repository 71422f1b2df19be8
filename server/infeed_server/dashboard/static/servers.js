// The servers side by side: this one, and those of `--http-peer`.

import { getJson, Poll } from "./api.js";
import { byId, clone, fill, reconcile, setAttribute, setIcon } from "./dom.js";
import * as format from "./format.js";
import { samplesPerSecond } from "./tables.js";

export class Servers {
  constructor(peers) {
    this.peers = peers.filter((origin) => origin !== location.origin);
    this.latest = new Map([[location.origin, { status: null, error: null }]]);
    this.polls = this.peers.map((origin) => {
      this.latest.set(origin, { status: null, error: "connecting" });
      return new Poll(() => this.#update(origin), (error) => {
        const before = this.latest.get(origin);
        this.latest.set(origin, { ...before, error: reason(error) });
      });
    });
    byId("servers-section").hidden = !this.peers.length;
  }

  start() { this.polls.forEach((poll) => poll.start()); }

  stop() { this.polls.forEach((poll) => poll.stop()); }

  async #update(origin) {
    const status = await getJson("/api/v1/status", origin);
    if (!isStatus(status)) throw new Error("it answers something else");
    this.latest.set(origin, { status, error: null, at: performance.now() });
  }

  show(status, pipelineName) {
    if (!this.peers.length) return;
    this.latest.set(location.origin, { status, error: null });
    const own = find(status, pipelineName);
    const rows = [...this.latest].map(([origin, each]) => ({ origin, ...each }));
    reconcile(byId("servers"), rows, (row) => row.origin, create, (node, row) => {
      try {
        showServer(node, row, own, pipelineName);
      } catch {
        // Another version of a peer must not end the update of the page.
        showServer(node, { ...row, status: null, error: "it answers something else" }, own, pipelineName);
      }
    });
  }
}

const find = (status, name) => status.pipelines.find((each) => each?.name === name);

const isStatus = (status) => Array.isArray(status?.pipelines) && typeof status.server?.ready === "boolean";

const reason = (error) => (error.status === 401 ? "it needs a token: open its page" : error.message);

function create({ origin }) {
  const node = clone("t-server");
  node.querySelector("a").href = `${origin}/`;
  return node;
}

function showServer(node, { origin, status, error, at }, own, pipelineName) {
  const here = origin === location.origin;
  const pipeline = status && find(status, pipelineName);
  const good = Boolean(status?.server.ready) && !error;
  const old = error && at ? `; last figures ${format.duration((performance.now() - at) / 1000)} ago` : "";
  setAttribute(node, "data-state", good ? "good" : "high");
  setAttribute(node, "data-stale", Boolean(error));
  setIcon(node, "icon", good ? "i-good" : "i-high");
  fill(node, {
    address: origin.replace(/^https?:\/\//, ""),
    here: here ? "this page" : "",
    state: error ? `${error}${old}` : good ? "ready" : `not ready: ${status.server.reason}`,
    rate: format.number(pipeline ? samplesPerSecond(pipeline) : null),
    bytes: format.byteRate(pipeline?.report.seconds ? pipeline.report.bytes / pipeline.report.seconds : null),
    cpu: status ? `${format.percent(status.server.cpu_share)} of ${format.number(status.server.cores)}` : "–",
    streams: format.count(pipeline?.totals.streams),
    data: !status ? "–" : !pipeline ? "has no such pipeline" : here ? pipeline.fingerprint.slice(0, 12)
      : pipeline.fingerprint === own?.fingerprint ? "the same" : `differs: ${String(pipeline.fingerprint).slice(0, 12)}`,
  });
}
