// The tables: pipelines, and the ranks of jobs.

import { byId, h, icon, meter, render, setAttribute, setText, table } from "./dom.js";
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

const trainersOf = ({ jobs }) => jobs.reduce((sum, job) => sum + job.trainers.length, 0);

const isGood = (pipeline) => pipeline.ready && !pipeline.source_error;

const waitOf = ({ job }) => (job ? format.percent(job.verdict.wait_share, 1) : "–");

const pipelineColumns = (selected, select) => [
  ["name", "Pipeline", "row", ({ name }) => h("button", {
    type: "button", class: "pick", "aria-pressed": String(name === selected), onclick: () => select(name),
  }, name)],
  ["state", "State", "", (each) => h("span", { class: "state" },
    icon(isGood(each) ? "i-good" : "i-high"), h("span", {}, stateOf(each)))],
  ["rate", "Samples/s", "n", (each) => format.number(samplesPerSecond(each))],
  ["bytes", "Sent", "n", (each) => format.byteRate(perSecond(each, "bytes"))],
  ["trainers", "Trainers", "n", (each) => format.count(trainersOf(each))],
  ["wait", "Worst wait", "n", (each) => waitOf(worstJob(each))],
  ["queued", "Queued", "n", ({ queues }) => format.count(queues.queued_requests)],
  ["unsent", "Unsent", "n", ({ queues }) => format.bytes(queues.unsent_bytes)],
  ["bad", "Bad samples", "n", ({ totals }) => format.count(totals.bad_samples)],
  ["definition", "Definition", "wide", definition],
];

export function showPipelines(pipelines, selected, select) {
  const view = byId("pipelines");
  setAttribute(view.closest(".scroll"), "data-many", pipelines.length > MANY_PIPELINES);
  render(view, table(pipelineColumns(selected, select), pipelines, (each) => ({
    key: each.name,
    "data-state": isGood(each) ? "good" : "high",
    "data-selected": each.name === selected,
  })));
}

// The pipelines that the server cannot serve, and why.
export function showBroken(broken) {
  render(byId("broken"), Object.entries(broken).map(([name, reason]) => (
    h("p", { key: name, class: "notice" }, icon("i-high"), h("span", {}, `${name} is not served: ${reason}`))
  )));
}

// The readiness, and the last reason for refused batches since the start.
function stateOf({ ready, reason, source_error: refused, totals }) {
  const state = ready ? "ready" : `not ready: ${reason}`;
  if (!refused || reason === refused.error) return state;
  return `${state}; refused for their data: ${format.plural(totals.source_errors, "batch", "batches")}, the last at `
    + `${format.clockTime(Date.parse(refused.time) / 1000)}: ${refused.error}`;
}

function definition(pipeline) {
  const samples = pipeline.sample_count === null
    ? "unknown length" : format.plural(pipeline.sample_count, "sample");
  const fields = pipeline.element_spec.map((field) => field + classesOf(pipeline, field)).join(", ");
  return `${samples}, batch ${pipeline.batch_size}, seed ${pipeline.seed}; ${fields}; `
    + `${pipeline.fingerprint.slice(0, 12)}`;
}

// The classes of a field such as `label: int64[]`.
function classesOf({ classes }, field) {
  const name = field.slice(0, field.lastIndexOf(": "));
  const found = Object.hasOwn(classes, name) && classes[name];
  if (!found) return "";
  const more = found.count > found.first.length ? ", …" : "";
  return ` (${format.plural(found.count, "class", "classes")}: ${found.first.join(", ")}${more})`;
}

const RANK_COLUMNS = [
  ["rank", "Rank", "row", ({ rank }) => [
    h("span", { class: "row-name" }, "Rank "), h("span", { "data-f": "number" }, rank), h("span", { class: "flag" }, "worst"),
  ]],
  ["wait", "Waits", "", ({ report, wait_share: share }) => h("span", { class: "waits" },
    meter(share), h("span", {}, report?.seconds ? format.percent(share, 1) : "no batch yet"))],
  ["step", "Step", "n", (each) => format.seconds(each.step_seconds)],
  ["rate", "Steps/s", "n", ({ report }) => format.number(report?.seconds ? report.steps / report.seconds : null)],
  ["ready", "Data ready", "n", ({ report }) => (
    format.percent(report?.steps ? 1 - report.starved_steps / report.steps : null)
  )],
  ["queue", "In queue", "n", ({ report }) => format.plural(report?.ready_batches, "batch", "batches")],
  ["position", "Position", "n", (each) => format.count(each.report?.position ?? each.sent_position)],
  ["steps", "Steps", "n", ({ report }) => format.count(report?.total_steps)],
  ["cpu", "Client CPU", "n", ({ report }) => (
    format.percent(report?.seconds ? report.cpu_seconds / report.seconds : null)
  )],
  ["age", "Report", "n", ({ report_age_seconds: age }) => (
    age === null ? "none yet" : `${format.duration(age)} ago`
  )],
  ["peer", "From", "wide", ({ peer, feed }) => `${peer}, feed ${feed}`],
];

const rankKey = ({ rank, feed, peer }) => `${rank} ${feed} ${peer}`;

// `shown` is the verdict at the top, whose line is not repeated.
export function showJobs({ name, jobs }, shown) {
  byId("no-trainers").hidden = jobs.length > 0;
  setText(byId("connect-hint"), `infeed.connect("HOST:PORT", ${JSON.stringify(name)})`);
  render(byId("jobs"), jobs.map((job) => {
    const { key, icon: symbol } = levelOf(job.verdict);
    const ranks = `${format.count(job.trainers.length)} of ${format.plural(job.world_size, "rank")}`;
    const isWorst = ({ rank }) => job.world_size > 1 && rank === job.verdict.rank
      && ["moderate", "high"].includes(key);
    return h("article", {
      key: job.id, class: "job", "data-level": key, "data-many": job.trainers.length > MANY_RANKS,
    },
    h("h3", {}, h("span", {}, `Job ${job.id}`), " ", h("span", { class: "muted" },
      `${ranks} connected, batch ${job.batch_size}, seed ${job.seed}`)),
    job.warning && h("p", { class: "job-verdict warning" }, icon("i-moderate"), h("span", {}, job.warning)),
    job.trainers.length > MANY_RANKS && rankMap(job.trainers),
    h("p", { class: "job-verdict" }, icon(symbol),
      h("span", {}, job.verdict.text === shown.text ? job.verdict.level : job.verdict.text)),
    h("div", { class: "scroll", role: "region", "aria-label": `Ranks of job ${job.id}`, tabindex: 0 },
      h("table", { class: "cards" }, table(RANK_COLUMNS, job.trainers, (each) => ({
        key: rankKey(each), "data-worst": isWorst(each), "data-wait": waitLevel(each.wait_share),
      })))));
  }));
}

// The waits of many ranks at a glance: a cell for each.
function rankMap(trainers) {
  const count = (level) => trainers.filter((each) => waitLevel(each.wait_share) === level).length;
  const label = `Waits of ${format.plural(trainers.length, "rank")}: ${count("high")} high, ${count("moderate")} moderate`;
  return h("div", { class: "rank-map", role: "img", "aria-label": label }, trainers.map((each) => h("span", {
    key: rankKey(each),
    "data-wait": waitLevel(each.wait_share),
    title: `rank ${each.rank}: ${format.percent(each.wait_share, 1)} wait`,
  }, each.rank)));
}

// Applies the verdict's levels to one rank.
function waitLevel(share) {
  if (typeof share !== "number") return "unknown";
  return share < 0.05 ? "good" : share < 0.2 ? "moderate" : "high";
}
