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
      return new Poll(
        async () => this.latest.set(origin, { status: await getJson("/api/v1/status", origin) }),
        () => this.latest.set(origin, { status: null, error: "no connection" }),
      );
    });
    byId("servers-section").hidden = !this.peers.length;
  }

  start() { this.polls.forEach((poll) => poll.start()); }

  stop() { this.polls.forEach((poll) => poll.stop()); }

  show(status, pipelineName) {
    if (!this.peers.length) return;
    this.latest.set(location.origin, { status });
    const own = find(status, pipelineName);
    const rows = [...this.latest].map(([origin, each]) => ({ origin, ...each }));
    reconcile(byId("servers"), rows, (row) => row.origin, create, (node, row) => {
      showServer(node, row, own, pipelineName);
    });
  }
}

const find = (status, name) => status.pipelines.find((each) => each.name === name);

function create({ origin }) {
  const node = clone("t-server");
  node.querySelector("a").href = `${origin}/`;
  return node;
}

function showServer(node, { origin, status, error }, own, pipelineName) {
  const here = origin === location.origin;
  const address = `${origin.replace(/^http:\/\//, "")}${here ? " (this page)" : ""}`;
  const pipeline = status && find(status, pipelineName);
  const good = Boolean(status?.server.ready);
  setAttribute(node, "data-state", good ? "good" : "high");
  setIcon(node, "icon", good ? "i-good" : "i-high");
  fill(node, {
    address,
    state: status ? (good ? "ready" : `not ready: ${status.server.reason}`) : error,
    rate: format.number(pipeline ? samplesPerSecond(pipeline) : null),
    bytes: format.byteRate(pipeline?.report.seconds ? pipeline.report.bytes / pipeline.report.seconds : null),
    cpu: status ? `${format.percent(status.server.cpu_share)} of ${format.number(status.server.cores)}` : "–",
    streams: format.count(pipeline?.totals.streams),
    data: !status ? "–" : !pipeline ? "has no such pipeline" : here ? pipeline.fingerprint.slice(0, 12)
      : pipeline.fingerprint === own?.fingerprint ? "the same" : `differs: ${pipeline.fingerprint.slice(0, 12)}`,
  });
}
