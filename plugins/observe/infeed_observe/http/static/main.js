// The page: requests the status once a second and shows it in place.

import { getJson, Poll, RequestError } from "./api.js";
import { showBadSamples } from "./bad_samples.js";
import { Chart } from "./charts.js";
import { byId, h, icon, render, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { showPath } from "./path.js";
import { Preview } from "./preview.js";
import { samplesPerSecond, showBroken, showJobs, showPipelines } from "./tables.js";
import { showVerdict } from "./verdict.js";

const MAX_SECONDS = 600;

const page = {
  status: null,
  history: [],
  selected: null,
  judged: null,
  seconds: 300,
  bad: { key: "", samples: [] },
  answeredAt: null,
  problem: null,
  retryAt: 0,
  paused: false,
};

const rateChart = new Chart(byId("chart-rate"), { title: "Samples per second, mean of 10 s", format: format.number });
const waitChart = new Chart(byId("chart-wait"), {
  title: "Wait of the worst rank",
  format: (value) => format.percent(value, 1),
  axis: format.percent,
  limits: [[0.2, "highly input-bound"], [0.05, "moderately"]],
  top: 1,
});
let preview; // null if this server makes none

async function update() {
  if (preview === undefined) {
    const { endpoints = {} } = await getJson("/api/v1");
    preview = "/api/v1/pipelines/NAME/preview" in endpoints ? new Preview(() => current()?.name) : null;
  }
  const status = await getJson("/api/v1/status");
  if (status.server.uptime_seconds < (page.status?.server.uptime_seconds ?? 0)) page.bad.key = "";
  page.status = status;
  remember(status.pipelines);
  page.answeredAt = performance.now();
  page.problem = null;
  await updateBadSamples();
  show();
}

// Requests the bad samples when there are new ones.
async function updateBadSamples() {
  const pipeline = current();
  if (!pipeline) return;
  const key = `${pipeline.totals.bad_samples} ${pipeline.name}`;
  if (key === page.bad.key) return;
  const path = `/api/v1/pipelines/${encodeURIComponent(pipeline.name)}/bad-samples`;
  page.bad = { key, samples: pipeline.totals.bad_samples ? (await getJson(path)).samples : [] };
}

// The selected pipeline; at first the one with the most trainers.
function current() {
  const pipelines = page.status?.pipelines ?? [];
  const trainers = (each) => each.jobs.reduce((sum, job) => sum + job.trainers.length, 0);
  return pipelines.find((each) => each.name === page.selected)
    ?? pipelines.reduce((a, b) => (a && trainers(a) >= trainers(b) ? a : b), undefined);
}

function select(name) {
  page.selected = name;
  show();
  updateBadSamples().then(show, () => {});
}

function show() {
  const { status } = page;
  if (!status) return;
  showFacts(status);
  page.judged = showVerdict(status);
  const pipeline = current();
  byId("verdict-show").hidden = !page.judged || page.judged === pipeline?.name;
  byId("main").dataset.empty = !pipeline;
  if (!pipeline) return;
  showPipelines(status.pipelines, pipeline.name, select);
  showBroken(status.broken);
  for (const each of document.querySelectorAll("[data-pipeline]")) {
    setText(each, pipeline.name);
    setAttribute(each, "title", pipeline.name);
  }
  showPath(pipeline);
  showJobs(pipeline, status.verdict);
  showBadSamples(pipeline, page.bad.samples);
  preview?.show(pipeline.name);
  showCharts(pipeline);
}

// Keeps what the charts show, which the server does not keep.
function remember(pipelines) {
  const now = Date.now() / 1000;
  const values = new Map(pipelines.map((each) => [each.name, { rate: samplesPerSecond(each), wait: worstWait(each) }]));
  // Drops later points too, in case the clock was set back.
  page.history = page.history.filter(({ at }) => at < now && at >= now - MAX_SECONDS);
  page.history.push({ at: now, values });
}

function worstWait({ jobs }) {
  const ranks = jobs.flatMap((job) => job.trainers).filter(({ report }) => report?.seconds);
  return ranks.length ? Math.max(...ranks.map((each) => each.wait_share)) : null;
}

function showCharts({ name }) {
  const points = (column) => page.history.map(({ at, values }) => [at, values.get(name)?.[column] ?? null]);
  rateChart.show(points("rate"), page.seconds);
  waitChart.show(points("wait"), page.seconds);
}

function showFacts({ server, pipelines }) {
  // For autoscalers, the number falls minutes after the load does: without trainers it means nothing.
  const hasTrainers = pipelines.some((each) => each.jobs.length);
  const facts = [
    ["Server", location.host, "address"],
    ["State", [icon(server.ready ? "i-good" : "i-high"), h("span", {}, server.ready ? "ready" : "not ready")], "state"],
    ["Processors", `${format.percent(server.cpu_share)} of ${format.number(server.cores)}`, "cpu"],
    ["Memory", `${format.bytes(server.memory_bytes)} of ${format.bytes(server.memory_limit_bytes)}`, "memory"],
    ["Memory, peak", format.bytes(server.peak_memory_bytes), "peak"],
    ["Servers needed", hasTrainers ? format.count(server.desired_servers) : "–", "servers"],
    ["Up", format.duration(server.uptime_seconds), "uptime"],
    ["Version", server.version, "version"],
  ];
  setAttribute(byId("facts"), "data-state", server.ready ? "good" : "high");
  render(byId("facts"), facts.map(([name, value, key]) => (
    h("div", {}, h("dt", {}, name), h("dd", { "data-f": key }, value))
  )));
  byId("notice").hidden = server.ready;
  setText(byId("notice-text"), server.ready ? "" : `This server is not ready: ${server.reason}`);
}

// Shows the state of the connection, with the age of the figures.
function showLink() {
  const now = performance.now();
  const age = page.answeredAt === null ? null : (now - page.answeredAt) / 1000;
  const old = age === null ? "" : ` for ${format.duration(age)}`;
  const wait = Math.max(0, Math.ceil((page.retryAt - now) / 1000));
  const [state, text] = page.paused ? ["paused", `paused${old}`]
    : page.problem ? ["lost", `${problemOf(page.problem)}${old}; next try ${wait ? `in ${wait} s` : "now"}`]
    : age === null ? ["waiting", "connecting"]
    : ["live", "live"];
  setAttribute(byId("link"), "data-state", state);
  // A figure stays with its unit.
  setText(byId("link-text"), text.replace(/(\d) /g, "$1\u00a0"));
  setAttribute(document.body, "data-stale", state === "lost" || state === "paused");
}

function problemOf(problem) {
  if (!(problem instanceof RequestError)) return "a response from another version";
  return [401, 403].includes(problem.status) ? "no access" : problem.message;
}

const isWanted = () => !page.paused && !document.hidden;

const poll = new Poll(update, isWanted, (error, delay) => {
  if (!page.problem) setText(byId("announcer"), `No figures from the server: ${problemOf(error)}`);
  page.problem = error;
  page.retryAt = performance.now() + delay;
  showLink();
});

byId("pause").addEventListener("click", () => {
  page.paused = !page.paused;
  setAttribute(byId("pause"), "aria-pressed", page.paused);
  poll.round();
  showLink();
});

byId("verdict-show").addEventListener("click", () => {
  select(page.judged);
  byId("main").focus();
});

byId("ranges").addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (!button) return;
  page.seconds = Number(button.dataset.seconds);
  for (const each of byId("ranges").children) setAttribute(each, "aria-pressed", each === button);
  if (current()) showCharts(current());
});

document.addEventListener("visibilitychange", () => poll.round());

setInterval(showLink, 250);
poll.round();
