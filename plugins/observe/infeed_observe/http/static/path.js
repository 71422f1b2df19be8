// The path of a batch, A to H: the time of each stage per batch, and the bottleneck.

import { byId, h, icon, meter, render, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";

const SERVER = [
  { letter: "A", name: "source", glyph: "g-source" },
  { letter: "B", name: "transforms", glyph: "g-transform" },
  { letter: "C", name: "batches", glyph: "g-batch" },
  { letter: "D", name: "send", glyph: "g-send" },
];
const TRAINER = [
  { letter: "E", name: "receive", glyph: "g-receive" },
  { letter: "F", name: "prefetch", glyph: "g-queue" },
  { letter: "G", name: "finish", glyph: "g-finish" },
  { letter: "H", name: "step", glyph: "g-step" },
];

const STATES = [
  ["transform", "the transforms"],
  ["source", "the source"],
  ["no_budget", "room to send"],
  ["no_request", "a request"],
];

// The stage or wire that a cause is about.
const LIMITS = {
  storage: "A",
  "bad samples": "B",
  transforms: "B",
  serialisation: "D",
  "server budget": "C",
  sending: "D",
  "slow connection": "wire",
  "network rate": "wire",
  "round trip": "wire",
};

function bottleneck(verdict, trainer) {
  if (!verdict || verdict.level === "unknown") return null;
  if (verdict.level === "not input-bound") return "H";
  if (verdict.cause === "client CPU") {
    const report = trainer?.report;
    return report && report.finish_seconds >= report.cpu_seconds - report.finish_seconds ? "G" : "E";
  }
  return LIMITS[verdict.cause] ?? null;
}

// The job that waits most, and the rank that its verdict names.
export function worstJob(pipeline) {
  const known = pipeline.jobs.filter((job) => job.verdict.level !== "unknown");
  const jobs = known.length ? known : pipeline.jobs;
  if (!jobs.length) return {};
  const job = jobs.reduce((a, b) => (b.verdict.wait_share > a.verdict.wait_share ? b : a));
  const named = job.trainers.find((each) => each.rank === job.verdict.rank);
  return { job, trainer: named ?? job.trainers[0] };
}

export function showPath(pipeline) {
  const { job, trainer } = worstJob(pipeline);
  const figures = { ...serverFigures(pipeline), ...trainerFigures(trainer) };
  const limit = bottleneck(job?.verdict, trainer);
  render(byId("server-stages"), SERVER.map((stage) => stageOf(stage, figures, limit)));
  render(byId("trainer-stages"), TRAINER.map((stage) => stageOf(stage, figures, limit)));
  const { report } = pipeline;
  const perSecond = (value) => (report.seconds ? value / report.seconds : null);
  setText(byId("wire-rate"), format.byteRate(perSecond(report.bytes)));
  setText(byId("wire-size"), report.batches ? `${format.bytes(report.bytes / report.batches)} a batch` : "");
  setAttribute(byId("wire"), "data-limit", limit === "wire");
  setAttribute(byId("wire"), "data-flows", report.bytes > 0);
  setText(byId("server-side"), `${format.number(perSecond(report.batches))} batches/s`);
  setText(byId("trainer-side"), trainer
    ? `rank ${trainer.rank} of ${job.world_size}, ${job.world_size > 1 ? "which waits most" : "alone"}`
    : "none connected");
  showStates(report);
}

function serverFigures({ report, queues }) {
  const { seconds, batches } = report;
  const perBatch = (value) => (batches ? format.seconds(value / batches) : "–");
  const share = (value) => (seconds ? value / seconds : 0);
  const busy = (value, what) => `${what} ${format.percent(share(value))} of the time`;
  const sending = report.encode_seconds + report.send_seconds;
  return {
    A: {
      figure: perBatch(report.source_seconds),
      detail: busy(report.source_seconds, "waited for") + shareNote(
        report.cache_hits, report.cache_misses, "from the cache"),
      share: share(report.source_seconds),
    },
    B: {
      figure: perBatch(report.transform_seconds),
      detail: busy(report.transform_seconds, "waited for") + shareNote(
        report.shared_samples, report.computed_samples + report.recomputed_samples, "shared"),
      share: share(report.transform_seconds),
    },
    C: {
      figure: `${format.count(queues.unsent_batches)} unsent`,
      detail: `${format.bytes(queues.unsent_bytes)}; ${busy(report.no_budget_seconds, "full")}`,
      share: share(report.no_budget_seconds),
    },
    D: {
      figure: perBatch(sending),
      detail: `${perBatch(report.encode_seconds)} encode, ${perBatch(report.send_seconds)} send`,
      share: share(sending),
    },
  };
}

// Notes the share of samples that needed no work, if any.
function shareNote(saved, made, what) {
  return saved ? `; ${format.percent(saved / (saved + made))} ${what}` : "";
}

function trainerFigures(trainer) {
  const report = trainer?.report;
  if (!report?.seconds) {
    const none = { figure: "–", detail: "no report yet", share: 0 };
    return { E: none, F: none, G: none, H: none };
  }
  const { seconds, steps } = report;
  const perStep = (value) => (steps ? format.seconds(value / steps) : "–");
  const receiving = report.receive_seconds / (seconds * Math.max(1, report.streams));
  return {
    E: {
      figure: perStep(report.receive_seconds),
      detail: `under way ${format.percent(receiving)} of the time`,
      share: receiving,
    },
    F: {
      figure: `${format.count(report.ready_batches)} ready`,
      detail: `${format.plural(report.starved_steps, "step")} of ${format.count(steps)} waited`,
      share: steps ? 1 - report.starved_steps / steps : 0,
    },
    G: {
      figure: perStep(report.finish_seconds),
      detail: `busy ${format.percent(report.finish_seconds / seconds)} of the time`,
      share: report.finish_seconds / seconds,
    },
    H: {
      figure: format.seconds(trainer.step_seconds),
      detail: `+ ${perStep(report.wait_seconds)} wait, ${format.percent(trainer.wait_share, 1)} of the time`,
      share: 1 - trainer.wait_share,
    },
  };
}

function stageOf({ letter, name, glyph }, figures, limit) {
  const { figure, detail, share } = figures[letter];
  // If the training is not input-bound, its own step limits it, as it should.
  const flag = limit === "H" ? "sets the pace" : "bottleneck";
  return h("li", { class: "stage", "data-limit": letter === limit },
    h("div", { class: "head" }, h("span", { class: "letter" }, letter), h("span", { class: "name" }, name),
      h("span", { class: "flag" }, flag)),
    icon(glyph, "glyph"),
    h("div", { class: "figure" }, figure),
    h("div", { class: "muted" }, detail),
    meter(share));
}

function showStates(report) {
  const share = (state) => (report.seconds ? report[`${state}_seconds`] / report.seconds : 0);
  setText(byId("states-seconds"), `last ${format.number(report.seconds)} s`);
  let left = 0;
  render(byId("states-bar"), STATES.map(([state]) => {
    const [x, width] = [left, 1000 * share(state)].map((each) => each.toFixed(1));
    left += 1000 * share(state);
    return h("rect", { class: state, y: 0, height: 10, x, width });
  }));
  render(byId("states-key"), STATES.map(([state, name]) => h("div", {},
    h("dt", {}, h("i", { class: state }), h("span", {}, name)),
    h("dd", {}, format.percent(share(state))))));
}
