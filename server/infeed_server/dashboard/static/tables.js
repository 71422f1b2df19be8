// The tables: pipelines, and the ranks of jobs.

import { byId, clone, fill, reconcile, setAttribute, setIcon, setMeter, setText } from "./dom.js";
import * as format from "./format.js";
import { levelOf } from "./verdict.js";
import { worstJob } from "./path.js";

const MANY_RANKS = 12;
const MANY_PIPELINES = 12;

const perSecond = (pipeline, name) => {
  const { seconds } = pipeline.report;
  return seconds ? pipeline.report[name] / seconds : null;
};

export const samplesPerSecond = (pipeline) => {
  const batches = perSecond(pipeline, "batches");
  return batches === null ? null : batches * pipeline.batch_size;
};

export function showPipelines(pipelines, selected, select) {
  const create = (pipeline) => {
    const row = clone("t-pipeline");
    row.querySelector(".pick").addEventListener("click", () => select(pipeline.name));
    return row;
  };
  setAttribute(byId("pipelines").closest(".scroll"), "data-many", pipelines.length > MANY_PIPELINES);
  reconcile(byId("pipelines"), pipelines, (each) => each.name, create, (row, each) => {
    const trainers = each.jobs.reduce((sum, job) => sum + job.trainers.length, 0);
    const { job } = worstJob(each);
    fill(row, {
      name: each.name,
      state: stateOf(each),
      rate: format.number(samplesPerSecond(each)),
      bytes: format.byteRate(perSecond(each, "bytes")),
      trainers: format.count(trainers),
      wait: job ? format.percent(job.verdict.wait_share, 1) : "–",
      queued: format.count(each.queues.queued_requests),
      unsent: format.bytes(each.queues.unsent_bytes),
      bad: format.count(each.totals.bad_samples),
      definition: definition(each),
    });
    const isGood = each.ready && !each.source_error;
    setIcon(row, "icon", isGood ? "i-good" : "i-high");
    setAttribute(row, "data-state", isGood ? "good" : "high");
    setAttribute(row, "data-selected", each.name === selected);
    setAttribute(row.querySelector(".pick"), "aria-pressed", each.name === selected);
  });
}

// Of batches that were refused since the start, the last reason.
function stateOf({ ready, reason, source_error: refused, totals }) {
  const state = ready ? "ready" : `not ready: ${reason}`;
  if (!refused || reason === refused.error) return state;
  return `${state}; refused for its data: ${format.plural(totals.source_errors, "batch", "batches")}, the last at `
    + `${format.clockTime(Date.parse(refused.time) / 1000)}: ${refused.error}`;
}

function definition(pipeline) {
  const samples = pipeline.sample_count === null
    ? "unknown length" : format.plural(pipeline.sample_count, "sample");
  const fields = pipeline.element_spec.join(", ");
  return `${samples}, batch ${pipeline.batch_size}, seed ${pipeline.seed}; ${fields}; `
    + `${pipeline.fingerprint.slice(0, 12)}`;
}

// `shown` is the verdict at the top, whose line is not repeated.
export function showJobs(pipeline, shown) {
  const { jobs } = pipeline;
  byId("no-trainers").hidden = jobs.length > 0;
  setText(byId("connect-hint"), `infeed.connect("HOST:PORT", ${JSON.stringify(pipeline.name)})`);
  reconcile(byId("jobs"), jobs, (job) => job.id, () => clone("t-job"), (node, job) => {
    const ranks = `${format.count(job.trainers.length)} of ${format.plural(job.world_size, "rank")}`;
    fill(node, {
      title: `Job ${job.id}`,
      about: `${ranks} connected, batch ${job.batch_size}, seed ${job.seed}`,
      verdict: job.verdict.text === shown.text ? job.verdict.level : job.verdict.text,
    });
    const { key, icon } = levelOf(job.verdict);
    setAttribute(node, "data-level", key);
    setIcon(node.querySelector(".job-verdict"), "icon", icon);
    setAttribute(node.querySelector(".scroll"), "aria-label", `Ranks of job ${job.id}`);
    showRankMap(node.querySelector(".rank-map"), job);
    setAttribute(node, "data-many", job.trainers.length > MANY_RANKS);
    showRanks(node.querySelector("tbody"), job);
  });
}

// The waits of many ranks at a glance: a cell for each.
function showRankMap(map, job) {
  map.hidden = job.trainers.length <= MANY_RANKS;
  if (map.hidden) return;
  const levels = job.trainers.map((each) => waitLevel(each.wait_share));
  const high = levels.filter((level) => level === "high").length;
  const moderate = levels.filter((level) => level === "moderate").length;
  setAttribute(map, "aria-label", `Waits of ${format.plural(levels.length, "rank")}: ${high} high, ${moderate} moderate`);
  const keyOf = (each) => `${each.rank} ${each.feed} ${each.peer}`;
  reconcile(map, job.trainers, keyOf, () => document.createElement("span"), (cell, each) => {
    setText(cell, each.rank);
    setAttribute(cell, "data-wait", waitLevel(each.wait_share));
    setAttribute(cell, "title", `rank ${each.rank}: ${format.percent(each.wait_share, 1)} wait`);
  });
}

function showRanks(body, job) {
  const isWorst = (rank) => job.world_size > 1 && rank === job.verdict.rank
    && ["moderate", "high"].includes(levelOf(job.verdict).key);
  const keyOf = (each) => `${each.rank} ${each.feed} ${each.peer}`;
  reconcile(body, job.trainers, keyOf, () => clone("t-rank"), (row, each) => {
    const report = each.report ?? {};
    const steps = report.steps ?? 0;
    const ready = steps ? 1 - report.starved_steps / steps : null;
    fill(row, {
      rank: each.rank,
      wait: report.seconds ? format.percent(each.wait_share, 1) : "no batch yet",
      step: format.seconds(each.step_seconds),
      rate: format.number(report.seconds ? steps / report.seconds : null),
      ready: format.percent(ready),
      queue: format.plural(report.ready_batches, "batch", "batches"),
      position: format.count(report.position ?? each.sent_position),
      steps: format.count(report.total_steps),
      cpu: format.percent(report.seconds ? report.cpu_seconds / report.seconds : null),
      age: each.report_age_seconds === null
        ? "none yet" : `${format.duration(each.report_age_seconds)} ago`,
      peer: `${each.peer}, feed ${each.feed}`,
    });
    setAttribute(row, "data-worst", isWorst(each.rank));
    setAttribute(row, "data-wait", waitLevel(each.wait_share));
    setMeter(row, each.wait_share);
  });
}

// The levels of the verdict, for one rank.
function waitLevel(share) {
  if (typeof share !== "number") return "unknown";
  return share < 0.05 ? "good" : share < 0.2 ? "moderate" : "high";
}
