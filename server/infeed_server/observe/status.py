"""Status: the document of `/api/v1/status`, of one process or of several that are one server.

Each process describes itself; here their descriptions are merged, and jobs judged. A server of one
process is the merge of one. `infeed serve --processes` merges the status of each of its processes.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Protocol

from infeed.shared.capacity import consumption
from infeed.shared.report import RankReport, ServerReport, TrainerReport, merge_processes
from infeed.shared.verdict import Verdict, judge
from infeed_server.observe.desired_servers import Demand, DesiredServers, enough_in_use
from infeed_server.observe.missing_ranks import MissingRanks

Document = dict[str, Any]

_MAX_BAD_SAMPLES = 100
"""As one process has."""


class Processes(Protocol):
    """The processes of a server."""

    def documents(self) -> list[Document]:
        """Returns what each process knows of itself: its `server` and its `pipelines`."""

    def bad_samples(self, pipeline: str) -> list[list[Document]]:
        """Returns the last bad samples of each process that has the pipeline."""


class Status:
    """The status of a server. `update` is called every second, the others on any thread."""

    def __init__(self, processes: Processes, clock: Callable[[], float] = time.monotonic) -> None:
        self.trainers: dict[str, int] = {}
        """Connected trainers by pipeline, as of the last `update`."""
        self.wait_shares: dict[str, float | None] = {}
        """The wait share of the rank that waits most, by pipeline, as of the last `update`."""
        self._processes = processes
        self._clock = clock
        self._desired = DesiredServers()
        self._missing_ranks = MissingRanks()

    @property
    def desired_servers(self) -> int:
        """Servers like this one that would feed all connected trainers without waits."""
        return self._desired.value

    def update(self) -> None:
        """Renews `desired_servers`, `trainers` and `wait_shares`."""
        pipelines = _merge_pipelines(self._processes.documents())
        jobs = {pipeline["name"]: pipeline["jobs"] for pipeline in pipelines}
        judged = ((_ranks(job), job["world_size"], _judge(job)) for job in chain(*jobs.values()))
        self._desired.update(
            self._clock(),
            {
                job["id"]: Demand(name, consumption(_ranks(job), job["world_size"]))
                for name, listed in jobs.items()
                for job in listed
            },
            {pipeline["name"]: _report(pipeline) for pipeline in pipelines},
            enough_in_use(judged),
        )
        # Some of several processes know a part of the ranks.
        whole = [part for part in pipelines if part["report"]["processes"] == 1]
        self._missing_ranks.update(self._clock(), {part["name"]: part["jobs"] for part in whole})
        self.trainers = {
            name: sum(len(job["trainers"]) for job in listed) for name, listed in jobs.items()
        }
        self.wait_shares = {name: _worst_wait(listed) for name, listed in jobs.items()}

    def to_json(self, readiness: Mapping[str, tuple[bool, str]]) -> Document:
        """Returns the document of `/api/v1/status`. `readiness` has, by pipeline and under "" for
        the server, whether it is ready, and why."""

        def state(name: str) -> Document:
            ready, reason = readiness.get(name, (False, ""))
            return {"ready": ready, "reason": reason}

        documents = self._processes.documents()
        pipelines = [{**part, **state(part["name"])} for part in _merge_pipelines(documents)]
        jobs = list(chain.from_iterable(pipeline["jobs"] for pipeline in pipelines))
        for job in jobs:
            job["verdict"] = _judge(job).to_json()
            job["warning"] = self._missing_ranks.warnings.get(job["id"])
        server = _merge_servers([document["server"] for document in documents])
        return {
            "server": {**server, **state(""), "desired_servers": self.desired_servers},
            "verdict": _worst_verdict([job["verdict"] for job in jobs]),
            "pipelines": pipelines,
            "broken": dict(chain.from_iterable(one["broken"].items() for one in documents)),
        }

    def bad_samples(self, pipeline: str) -> list[Document] | None:
        """Returns the last bad samples of a pipeline; None if no process has the pipeline."""
        lists = self._processes.bad_samples(pipeline)
        if not lists:
            return None
        merged: dict[int, Document] = {}
        oldest_first = chain.from_iterable(map(reversed, lists))
        for sample in sorted(oldest_first, key=lambda sample: str(sample["time"])):
            before = merged.pop(sample["sample_id"], {"count": 0})
            merged[sample["sample_id"]] = {**sample, "count": sample["count"] + before["count"]}
        return list(merged.values())[-_MAX_BAD_SAMPLES:][::-1]


def _merge_servers(servers: list[Document]) -> Document:
    sums = ("cores", "peak_memory_bytes", "memory_bytes", "memory_limit_bytes")
    merged = {name: sum(server[name] for server in servers) for name in sums}
    used = sum(server["cpu_share"] * server["cores"] for server in servers)
    return {
        **merged,
        "version": servers[0]["version"] if servers else "",
        "uptime_seconds": max((server["uptime_seconds"] for server in servers), default=0.0),
        "cpu_share": used / merged["cores"] if servers else 0.0,
    }


def _merge_pipelines(documents: Iterable[Document]) -> list[Document]:
    """Returns the pipelines of all processes, each once; their jobs have no verdict yet."""
    named: dict[str, list[Document]] = defaultdict(list)
    for pipeline in chain.from_iterable(document["pipelines"] for document in documents):
        named[pipeline["name"]].append(pipeline)
    return [_merge_pipeline(parts) for parts in named.values()]


def _merge_pipeline(parts: list[Document]) -> Document:
    report = merge_processes(map(_report, parts))
    errors = [part["source_error"] for part in parts if part.get("source_error")]
    return {
        **parts[0],
        "report": {**report.to_json(), "cpu_share": report.cpu_share},
        "totals": _sums(part["totals"] for part in parts),
        "source_error": max(errors, key=lambda error: str(error["time"]), default=None),
        "queues": _sums(part["queues"] for part in parts),
        "jobs": _merge_jobs(parts),
    }


def _merge_jobs(parts: Iterable[Document]) -> list[Document]:
    """Returns the jobs of a pipeline, whose ranks can be connected to different processes: as in
    `Jobs.connect`, a trainer belongs to the first equal one in which no other feed has its rank."""
    jobs: dict[str, list[Document]] = defaultdict(list)
    for job in chain.from_iterable(part["jobs"] for part in parts):
        base = job["id"].rpartition("-")[0]
        for trainer in job["trainers"]:
            equal = jobs[base]
            found = next((other for other in equal if _has_seat(other, trainer)), None)
            if not found:
                found = {**job, "id": f"{base}-{len(equal)}", "trainers": [], "reports": {}}
                equal.append(found)
            found["trainers"].append(trainer)
            found["reports"][job["report"]["process_id"]] = _report(job)
    merged = list(chain.from_iterable(jobs.values()))
    for job in merged:
        job["trainers"] = _one_of_each_feed(job["trainers"])
        job["report"] = merge_processes(job.pop("reports").values()).to_json()
    return merged


def _one_of_each_feed(trainers: list[Document]) -> list[Document]:
    """Returns by rank the stream with the newest report of each feed, which may have several."""
    newest: dict[str, Document] = {}
    for trainer in sorted(trainers, key=_report_age):
        newest.setdefault(trainer["feed"], trainer)
    return sorted(newest.values(), key=lambda trainer: trainer["rank"])


def _report_age(trainer: Document) -> float:
    age = trainer["report_age_seconds"]
    return math.inf if age is None else age


def _has_seat(job: Document, trainer: Document) -> bool:
    """Returns whether no other feed of a job has the rank of a trainer."""
    return all(
        seated["feed"] == trainer["feed"] or seated["rank"] != trainer["rank"]
        for seated in job["trainers"]
    )


def _ranks(job: Document) -> list[RankReport]:
    """Returns the last report of each trainer that has sent one."""
    return [
        RankReport(trainer["rank"], TrainerReport(**trainer["report"]))
        for trainer in job["trainers"]
        if trainer["report"] is not None
    ]


def _judge(job: Document) -> Verdict:
    return judge(_ranks(job), job["world_size"], [_report(job)])


def _worst_verdict(verdicts: list[Document]) -> Document:
    """Returns the verdict on the job that waits most, as its job has it."""
    known = [verdict for verdict in verdicts if verdict["level"] != "unknown"]
    nothing = judge([], 1, []).to_json()
    return max(known or verdicts, key=lambda verdict: verdict["wait_share"], default=nothing)


def _worst_wait(jobs: Iterable[Document]) -> float | None:
    reports = [rank.report for rank in chain.from_iterable(map(_ranks, jobs))]
    return max((report.wait_share for report in reports if report.seconds), default=None)


def _report(part: Document) -> ServerReport:
    """Returns the report of a pipeline or of a job."""
    report = part["report"]
    return ServerReport(**{name: report[name] for name in report if name != "cpu_share"})


def _sums(documents: Iterable[Document]) -> Document:
    sums: Counter[str] = Counter()
    for document in documents:
        sums.update(document)
    return dict(sums)
