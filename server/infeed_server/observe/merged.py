"""Merged status: the documents of several processes as one, for `infeed serve --processes`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any
from urllib.parse import quote

from infeed.report import RankReport, ServerReport, TrainerReport
from infeed.verdict import judge

Document = dict[str, Any]

_MAX_BAD_SAMPLES = 100
"""As one process has."""

_MAXIMA = ("seconds", "wait_share")
"""Values of which the largest counts; the others are sums."""


class MergedStatus:
    """The status of all processes, from the `/api/v1` of each."""

    def __init__(self, fetch: Callable[[str], Iterable[Document]]) -> None:
        """`fetch` returns the document at a path from each process that answers."""
        self._fetch = fetch

    @property
    def history(self) -> MergedHistory:
        """The rates of all processes together."""
        return MergedHistory(self._fetch)

    def to_json(self, readiness: Mapping[str, tuple[bool, str]]) -> Document:
        """Returns the document of `/api/v1/status`; `readiness` is that of the parent."""
        documents = list(self._fetch("/api/v1/status"))
        parts: dict[str, list[Document]] = defaultdict(list)
        for document in documents:
            for pipeline in document["pipelines"]:
                parts[pipeline["name"]].append(pipeline)
        pipelines = [_merge_pipeline(each) for each in parts.values()]
        for pipeline in pipelines:
            ready, reason = readiness.get(pipeline["name"], (False, ""))
            pipeline.update(ready=ready, reason=reason)
        servers = [document["server"] for document in documents]
        ready, reason = readiness.get("", (False, ""))
        jobs = [job["verdict"] for pipeline in pipelines for job in pipeline["jobs"]]
        known = [each for each in jobs if each["level"] != "unknown"]
        nothing = judge([], 1, []).to_json()
        return {
            "server": {**_merge_servers(servers), "ready": ready, "reason": reason},
            "verdict": max(known or jobs, key=lambda each: each["wait_share"], default=nothing),
            "pipelines": pipelines,
        }

    def bad_samples(self, pipeline: str) -> list[Document] | None:
        """Returns the last bad samples of a pipeline; None if no process has the pipeline."""
        path = f"/api/v1/pipelines/{quote(pipeline, safe='')}/bad-samples"
        lists = [each["samples"] for each in self._fetch(path) if "samples" in each]
        if not lists:
            return None
        samples = sorted(chain.from_iterable(lists), key=lambda each: str(each["time"]))
        return samples[-_MAX_BAD_SAMPLES:][::-1]


class MergedHistory:
    """The history of all processes."""

    def __init__(self, fetch: Callable[[str], Iterable[Document]]) -> None:
        self._fetch = fetch

    def to_json(self, seconds: float) -> Document:
        """Returns the points of the last seconds: their sums, of waits the largest."""
        points: dict[int, dict[tuple[str, str], list[float]]] = {}
        for document in self._fetch(f"/api/v1/history?seconds={seconds:g}"):
            for number, at in enumerate(document["at"]):
                point = points.setdefault(int(at), defaultdict(list))
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
        "memory_limit_bytes": sum(each["memory_limit_bytes"] for each in servers),
        "desired_servers": -(-sum(each["desired_servers"] for each in servers) // len(servers))
        if servers
        else 0,
    }


def _merge_pipeline(parts: list[Document]) -> Document:
    report = _merge_reports([_server_report(each["report"]) for each in parts])
    streams: dict[str, list[Document]] = defaultdict(list)
    for part in parts:
        for job in part["jobs"]:
            streams[job["id"]].append(job)
    return {
        **parts[0],
        "report": {**report.to_json(), "cpu_share": report.cpu_share},
        "totals": _sums([each["totals"] for each in parts]),
        "queues": _sums([each["queues"] for each in parts]),
        "jobs": [_merge_job(each, report) for each in streams.values()],
    }


def _merge_job(parts: list[Document], report: ServerReport) -> Document:
    trainers = [trainer for part in parts for trainer in part["trainers"]]
    trainers.sort(key=lambda each: each["rank"])
    ranks = [
        RankReport(each["rank"], TrainerReport(**each["report"]))
        for each in trainers
        if each["report"] is not None
    ]
    verdict = judge(ranks, parts[0]["world_size"], [report])
    return {**parts[0], "verdict": verdict.to_json(), "trainers": trainers}


def _server_report(document: Document) -> ServerReport:
    return ServerReport(**{name: value for name, value in document.items() if name != "cpu_share"})


def _merge_reports(reports: list[ServerReport]) -> ServerReport:
    """Returns the report of one server with all processes: its states still add up to its time."""
    total = _sums([each.to_json() for each in reports])
    states = ("no_request", "no_budget", "source", "transform")
    means = {f"{state}_seconds": total[f"{state}_seconds"] / len(reports) for state in states}
    return ServerReport(**{**total, **means})


def _sums(documents: list[Document]) -> Document:
    """Returns the sums by name. A process lacks a stage that it has not run."""
    names = dict.fromkeys(chain.from_iterable(documents))
    return {
        name: _combine(name, [each[name] for each in documents if name in each]) for name in names
    }


def _combine(name: str, values: list[float]) -> float:
    return max(values) if name in _MAXIMA else sum(values)
