"""Views: what a process knows about itself, its pipelines and its trainers at one moment.

`to_json` makes the documents of `/api/v1/status`; `from_json` reads those of other processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from infeed.shared.report import RankReport, ServerReport, TrainerReport
from infeed.shared.verdict import Verdict, judge

Document = dict[str, Any]


@dataclass(frozen=True)
class TrainerView:
    """The stream of one rank."""

    rank: int
    feed: str
    peer: str
    connected_seconds: float
    sent_position: int | None
    report_age_seconds: float | None
    report: TrainerReport | None
    """Its last report; None before the first, and once the last is too old."""

    def to_json(self) -> Document:
        report = self.report
        return {
            **vars(self),
            "report": report and report.to_json(),
            "wait_share": report and report.wait_share,
            "step_seconds": report and report.step_seconds,
        }


@dataclass(frozen=True)
class JobView:
    """The connected ranks of one job."""

    id: str
    """A readable name; its final number tells equal jobs apart."""
    seed: int
    batch_size: int
    world_size: int
    report: ServerReport
    trainers: list[TrainerView]
    """Sorted by rank; a feed with several streams is there with its newest report."""

    @property
    def base(self) -> str:
        """The id without the number that tells equal jobs apart."""
        return self.id.rpartition("-")[0]

    @property
    def ranks(self) -> list[RankReport]:
        """The last report of each trainer that has sent one."""
        return [RankReport(one.rank, one.report) for one in self.trainers if one.report is not None]

    @property
    def verdict(self) -> Verdict:
        return judge(self.ranks, self.world_size, [self.report])

    def to_json(self, warning: str | None) -> Document:
        return {
            **vars(self),
            "report": self.report.to_json(),
            "trainers": [trainer.to_json() for trainer in self.trainers],
            "verdict": self.verdict.to_json(),
            "warning": warning,
        }


_JOBS = TypeAdapter(list[JobView])


@dataclass(frozen=True)
class PipelineView:
    """A served pipeline. `spec` holds the keys of the status that never change."""

    name: str
    spec: Document
    report: ServerReport
    jobs: list[JobView]
    totals: dict[str, float] = field(default_factory=dict)
    source_error: Document | None = None
    queues: dict[str, float] = field(default_factory=dict)

    @property
    def trainers(self) -> int:
        return sum(len(job.trainers) for job in self.jobs)

    @property
    def worst_wait(self) -> float | None:
        """The wait share of the rank that waits most."""
        reports = [rank.report for job in self.jobs for rank in job.ranks]
        return max((report.wait_share for report in reports if report.seconds), default=None)

    def to_json(self) -> Document:
        """Returns the document without the jobs and the readiness."""
        return {
            "name": self.name,
            **self.spec,
            "report": {**self.report.to_json(), "cpu_share": self.report.cpu_share},
            "totals": self.totals,
            "source_error": self.source_error,
            "queues": self.queues,
        }

    @classmethod
    def from_json(cls, document: Document) -> PipelineView:
        own = {name: document[name] for name in ("name", "totals", "source_error", "queues")}
        report = {key: value for key, value in document["report"].items() if key != "cpu_share"}
        jobs = _JOBS.validate_python(document["jobs"])
        other = {"report", "jobs", "ready", "reason", *own}
        spec = {key: value for key, value in document.items() if key not in other}
        return cls(spec=spec, report=ServerReport(**report), jobs=jobs, **own)


@dataclass(frozen=True)
class ProcessView:
    """A process. `server` holds the status's keys about the server."""

    server: Document
    pipelines: list[PipelineView]
    broken: dict[str, str]

    @classmethod
    def from_json(cls, document: Document) -> ProcessView:
        pipelines = [PipelineView.from_json(pipeline) for pipeline in document["pipelines"]]
        return cls(document["server"], pipelines, document["broken"])


def one_of_each_feed(trainers: Iterable[TrainerView]) -> list[TrainerView]:
    """Returns the stream with the newest report of each feed, sorted by rank."""
    newest: dict[str, TrainerView] = {}
    for trainer in sorted(trainers, key=_report_age):
        newest.setdefault(trainer.feed, trainer)
    return sorted(newest.values(), key=lambda trainer: trainer.rank)


def _report_age(trainer: TrainerView) -> float:
    age = trainer.report_age_seconds
    return math.inf if age is None else age
