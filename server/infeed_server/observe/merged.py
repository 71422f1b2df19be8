"""Merged status: the documents of several processes as one, for `infeed serve --processes`."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any
from urllib.parse import quote

from infeed.shared.capacity import consumption
from infeed.shared.process_reports import merge_processes
from infeed.shared.report import RankReport, ServerReport, TrainerReport
from infeed.shared.verdict import Verdict, judge
from infeed_server.observe.desired_servers import DesiredServers, enough_in_use
from infeed_server.observe.observer import worst_verdict

Document = dict[str, Any]

_MAX_BAD_SAMPLES = 100
"""As one process has."""

_MAXIMA = ("seconds", "wait_share")
"""Values of which the largest counts; the others are sums."""


class MergedStatus:
    """The status of all processes, from the `/api/v1` of each."""

    def __init__(
        self,
        fetch: Callable[[str], Iterable[Document]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fetch` returns the document at a path from each process that answers."""
        self._fetch = fetch
        self._clock = clock
        self._desired = DesiredServers()

    def update(self) -> None:
        """Renews what needs a look every second: `desired_servers`.

        The processes cannot know it: each has the trainers of its own connections alone.
        """
        parts = _pipeline_parts(list(self._fetch("/api/v1/status")))
        reports = {name: _merged_report(each) for name, each in parts.items()}
        demands = {name: _demand(each) for name, each in parts.items()}
        jobs = [job for part in parts.values() for job in _merge_jobs(part)]
        enough = enough_in_use((_ranks(job), job["world_size"], _verdict(job)) for job in jobs)
        self._desired.update(self._clock(), demands, reports, enough)

    @property
    def desired_servers(self) -> int:
        """Servers of so many processes that would feed all connected trainers without waits."""
        return self._desired.value

    @property
    def history(self) -> MergedHistory:
        """The rates of all processes together."""
        return MergedHistory(self._fetch)

    def to_json(self, readiness: Mapping[str, tuple[bool, str]]) -> Document:
        """Returns the document of `/api/v1/status`; `readiness` is that of the parent."""
        documents = list(self._fetch("/api/v1/status"))
        pipelines = [_merge_pipeline(each) for each in _pipeline_parts(documents).values()]
        for pipeline in pipelines:
            ready, reason = readiness.get(pipeline["name"], (False, ""))
            pipeline.update(ready=ready, reason=reason)
        servers = [document["server"] for document in documents]
        ready, reason = readiness.get("", (False, ""))
        return {
            "server": {
                **_merge_servers(servers),
                "ready": ready,
                "reason": reason,
                "desired_servers": self.desired_servers,
            },
            "verdict": worst_verdict(pipelines),
            "pipelines": pipelines,
        }

    def bad_samples(self, pipeline: str) -> list[Document] | None:
        """Returns the last bad samples of a pipeline; None if no process has the pipeline."""
        path = f"/api/v1/pipelines/{quote(pipeline, safe='')}/bad-samples"
        lists = [each["samples"] for each in self._fetch(path) if "samples" in each]
        if not lists:
            return None
        merged: dict[int, Document] = {}
        for each in sorted(chain.from_iterable(lists), key=lambda each: str(each["time"])):
            before = merged.pop(each["sample_id"], {"count": 0})
            merged[each["sample_id"]] = {**each, "count": each["count"] + before["count"]}
        return list(merged.values())[-_MAX_BAD_SAMPLES:][::-1]


class MergedHistory:
    """The history of all processes."""

    def __init__(self, fetch: Callable[[str], Iterable[Document]]) -> None:
        self._fetch = fetch

    def to_json(self, seconds: float) -> Document:
        """Returns the points of the last seconds: their sums, of waits the largest."""
        points: dict[int, dict[tuple[str, str], list[float]]] = {}
        for document in self._fetch(f"/api/v1/history?seconds={seconds:g}"):
            # Of two points of a process in one second, the last: their sum would be a peak.
            numbers = {int(at): number for number, at in enumerate(document["at"])}
            for at, number in numbers.items():
                point = points.setdefault(at, defaultdict(list))
                for pipeline, columns in document["pipelines"].items():
                    for name, column in columns.items():
                        if column[number] is not None:
                            point[pipeline, name].append(column[number])
        times = sorted(points)
        keys = sorted({key for point in points.values() for key in point})
        pipelines: dict[str, dict[str, list[float | None]]] = defaultdict(dict)
        for pipeline, name in keys:
            column = [points[at].get((pipeline, name)) for at in times]
            pipelines[pipeline][name] = [each and _combine(name, each) for each in column]
        return {"at": [float(at) for at in times], "pipelines": dict(pipelines)}


def _merge_servers(servers: list[Document]) -> Document:
    cores = sum(each["cores"] for each in servers)
    used = sum(each["cpu_share"] * each["cores"] for each in servers)
    return {
        "version": servers[0]["version"] if servers else "",
        "uptime_seconds": max((each["uptime_seconds"] for each in servers), default=0.0),
        "cores": cores,
        "cpu_share": used / cores if cores else 0.0,
        "peak_memory_bytes": sum(each["peak_memory_bytes"] for each in servers),
        "memory_bytes": sum(each["memory_bytes"] for each in servers),
        "memory_limit_bytes": sum(each["memory_limit_bytes"] for each in servers),
    }


def _pipeline_parts(documents: list[Document]) -> dict[str, list[Document]]:
    """Returns what each process has of a pipeline, by its name."""
    parts: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        for pipeline in document["pipelines"]:
            parts[pipeline["name"]].append(pipeline)
    return parts


def _merge_pipeline(parts: list[Document]) -> Document:
    report = _merged_report(parts)
    return {
        **parts[0],
        "report": {**report.to_json(), "cpu_share": report.cpu_share},
        "totals": _sums([each["totals"] for each in parts]),
        "source_error": max(
            (each["source_error"] for each in parts if each.get("source_error")),
            key=lambda each: str(each["time"]),
            default=None,
        ),
        "queues": _sums([each["queues"] for each in parts]),
        "jobs": [{**job, "verdict": _verdict(job).to_json()} for job in _merge_jobs(parts)],
    }


def _verdict(job: Document) -> Verdict:
    return judge(_ranks(job), job["world_size"], [ServerReport(**job["report"])])


def _merged_report(parts: list[Document]) -> ServerReport:
    """Returns the report of one server with all processes."""
    documents = [dict(each["report"]) for each in parts]
    for document in documents:
        del document["cpu_share"]  # derived
    return merge_processes([ServerReport(**each) for each in documents])


def _merge_jobs(parts: list[Document]) -> list[Document]:
    """Returns the jobs of a pipeline, whose ranks can be connected to different processes.

    Each process counts equal jobs for itself. As in one process, a trainer belongs to the first of
    them in which no other feed has its rank.
    """
    jobs: dict[str, list[Document]] = defaultdict(list)
    for job in (job for part in parts for job in part["jobs"]):
        base = job["id"].rpartition("-")[0]
        for trainer in job["trainers"]:
            equal = jobs[base]
            found = next((each for each in equal if _has_seat(each, trainer)), None)
            if found is None:
                found = {**job, "id": f"{base}-{len(equal)}", "trainers": [], "report": {}}
                equal.append(found)
            found["trainers"].append(trainer)
            found["report"][job["report"]["process_id"]] = job["report"]
    merged = list(chain.from_iterable(jobs.values()))
    for job in merged:
        job["trainers"].sort(key=lambda each: each["rank"])
        reports = [ServerReport(**each) for each in job["report"].values()]
        job["report"] = merge_processes(reports).to_json()
    return merged


def _has_seat(job: Document, trainer: Document) -> bool:
    """Returns whether no other feed of a job has the rank of a trainer."""
    same_rank = (each for each in job["trainers"] if each["rank"] == trainer["rank"])
    return all(each["feed"] == trainer["feed"] for each in same_rank)


def _ranks(job: Document) -> list[RankReport]:
    return [
        RankReport(each["rank"], TrainerReport(**each["report"]))
        for each in job["trainers"]
        if each["report"] is not None
    ]


def _demand(parts: list[Document]) -> float:
    """Returns the batches per second that all jobs of a pipeline would take without waits."""
    demands = [consumption(_ranks(job), job["world_size"]) for job in _merge_jobs(parts)]
    return sum(filter(math.isfinite, demands))


def _sums(documents: list[Document]) -> Document:
    """Returns the sums by name. A process lacks a stage that it has not run."""
    names = dict.fromkeys(chain.from_iterable(documents))
    return {
        name: _combine(name, [each[name] for each in documents if name in each]) for name in names
    }


def _combine(name: str, values: list[float]) -> float:
    return max(values) if name in _MAXIMA else sum(values)
