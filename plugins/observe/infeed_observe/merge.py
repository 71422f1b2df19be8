"""Several processes as one server: their views, merged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from infeed.shared.report import ServerReport, merge_processes
from infeed_observe.views import (
    Document,
    JobView,
    PipelineView,
    ProcessView,
    TrainerView,
    one_of_each_feed,
)

_MAX_BAD_SAMPLES = 100
"""The limit of a single process, too."""


def merge_views(views: Sequence[ProcessView]) -> ProcessView:
    """Returns the views of all processes as that of one server, with each pipeline once."""
    named: dict[str, list[PipelineView]] = defaultdict(list)
    for pipeline in chain.from_iterable(view.pipelines for view in views):
        named[pipeline.name].append(pipeline)
    return ProcessView(
        _merge_servers([view.server for view in views]),
        [_merge_pipeline(parts) for parts in named.values()],
        dict(chain.from_iterable(view.broken.items() for view in views)),
    )


def merge_bad_samples(lists: Iterable[list[Document]]) -> list[Document]:
    """Returns the last bad samples of all processes, each once, with its counts added up."""
    merged: dict[int, Document] = {}
    oldest_first = chain.from_iterable(map(reversed, lists))
    for sample in sorted(oldest_first, key=lambda sample: str(sample["time"])):
        before = merged.pop(sample["sample_id"], {"count": 0})
        merged[sample["sample_id"]] = {**sample, "count": sample["count"] + before["count"]}
    return list(merged.values())[-_MAX_BAD_SAMPLES:][::-1]


def _merge_servers(servers: Sequence[Document]) -> Document:
    sums = ("cores", "peak_memory_bytes", "memory_bytes", "memory_limit_bytes")
    merged = {name: sum(server[name] for server in servers) for name in sums}
    used = sum(server["cpu_share"] * server["cores"] for server in servers)
    return {
        **merged,
        "version": servers[0]["version"] if servers else "",
        "uptime_seconds": max((server["uptime_seconds"] for server in servers), default=0.0),
        "cpu_share": used / merged["cores"] if servers else 0.0,
    }


def _merge_pipeline(parts: Sequence[PipelineView]) -> PipelineView:
    errors = [part.source_error for part in parts if part.source_error]
    return replace(
        parts[0],
        report=merge_processes(part.report for part in parts),
        totals=_sums(part.totals for part in parts),
        source_error=max(errors, key=lambda error: str(error["time"]), default=None),
        queues=_sums(part.queues for part in parts),
        jobs=_merge_jobs(chain.from_iterable(part.jobs for part in parts)),
    )


def _merge_jobs(jobs: Iterable[JobView]) -> list[JobView]:
    """Returns the jobs of a pipeline. Their ranks may be connected to different processes, so, as
    in `Jobs.connect`, a trainer joins the first equal job in which no other feed has its rank."""
    seated: dict[tuple[str, int], list[TrainerView]] = defaultdict(list)
    reports: dict[tuple[str, int], dict[int, ServerReport]] = defaultdict(dict)
    first: dict[str, JobView] = {}
    for job in jobs:
        first.setdefault(job.base, job)
        for trainer in job.trainers:
            number = 0
            while _is_taken(seated[job.base, number], trainer):
                number += 1
            seated[job.base, number].append(trainer)
            reports[job.base, number][job.report.process_id] = job.report
    return [
        replace(
            first[base],
            id=f"{base}-{number}",
            trainers=one_of_each_feed(trainers),
            report=merge_processes(reports[base, number].values()),
        )
        for (base, number), trainers in seated.items()
    ]


def _is_taken(seated: Iterable[TrainerView], trainer: TrainerView) -> bool:
    """Returns whether another feed has the rank of a trainer."""
    return any(one.feed != trainer.feed and one.rank == trainer.rank for one in seated)


def _sums(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for one in counts:
        sums.update(one)
    return dict(sums)
