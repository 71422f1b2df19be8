"""Jobs: the trainers that are connected, by the job whose ranks they are, with their reports."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from infeed.shared.report import REPORT_INTERVAL_SECONDS, RankReport, ServerReport, TrainerReport
from infeed.shared.sliding_window import SlidingWindow

_MIN_REPORT_INTERVAL_SECONDS = 0.5 * REPORT_INTERVAL_SECONDS
"""Seconds from one report to the next that is taken: clocks differ."""

_REPORT_LIFE_SECONDS = 15.0
"""Age from which a report counts no longer. A trainer reports every second, however long its steps
are: it is stopped, or its connection hangs, and a proxy may keep its stream open for hours."""


@dataclass(frozen=True)
class JobKey:
    """What the ranks of a job have in common; `number` tells equal jobs apart."""

    pipeline: str
    seed: int
    batch_size: int
    world_size: int
    job_name: str = ""
    number: int = 0

    @property
    def id(self) -> str:
        """A readable name, unique among the jobs that are connected."""
        name = f"-{self.job_name}" if self.job_name else ""
        size = f"{self.batch_size}x{self.world_size}"
        return f"{self.pipeline}-{self.seed}-{size}{name}-{self.number}"


@dataclass(eq=False)
class ConnectedTrainer:
    """The stream of one rank."""

    job: JobKey
    rank: int
    feed_id: str
    peer: str
    opened_at: float
    position: int | None = None
    """The end of the last batch that was sent; None before the first request."""
    report: TrainerReport | None = None
    """Its last report; None before the first, and when that is too old."""
    report_at: float | None = None
    held: Callable[[], Mapping[str, float]] = dict
    """Returns the seconds so far in which requests waited for what its stream held."""
    held_shares: Mapping[str, float] = field(default_factory=dict)
    """Shares of the last seconds, as of its last report."""
    _held: SlidingWindow = field(default_factory=SlidingWindow)

    def on_report(self, report: TrainerReport, now: float) -> None:
        """Keeps a report, and what the stream held meanwhile."""
        self.report, self.report_at = report, now
        counters = self.held()
        self._held.sample(now, counters)
        seconds, grown = self._held.difference(now, counters)
        self.held_shares = {
            name: min(1.0, value / seconds) if seconds else 0.0 for name, value in grown.items()
        }

    def to_json(self, now: float) -> dict[str, Any]:
        report, at = self.report, self.report_at
        return {
            "rank": self.rank,
            "feed": self.feed_id[:8],
            "peer": self.peer,
            "connected_seconds": now - self.opened_at,
            "sent_position": self.position,
            "report_age_seconds": None if at is None else now - at,
            "report": report and report.to_json(),
            "wait_share": report and report.wait_share,
            "step_seconds": report and report.step_seconds,
        }


ReportOf = Callable[[str, float], ServerReport]
"""Returns the report on a pipeline's last seconds, at most so many."""


class Jobs:
    """The connected trainers of a server. Thread-safe."""

    def __init__(
        self, server_report: ReportOf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server_report = server_report
        self._clock = clock
        self._jobs: dict[JobKey, list[ConnectedTrainer]] = {}
        self._lock = threading.Lock()

    def connect(
        self,
        key: JobKey,
        rank: int,
        feed_id: str,
        peer: str,
        held: Callable[[], Mapping[str, float]] = dict,
    ) -> ConnectedTrainer:
        """Adds a stream: of the first equal job in which no other feed has the rank."""
        with self._lock:
            for number in itertools.count():
                job = replace(key, number=number)
                seated = self._jobs.setdefault(job, [])
                if all(other.rank != rank or other.feed_id == feed_id for other in seated):
                    break
            trainer = ConnectedTrainer(job, rank, feed_id, peer, self._clock(), held=held)
            seated.append(trainer)
            return trainer

    def disconnect(self, trainer: ConnectedTrainer) -> None:
        """Removes a stream. Idempotent."""
        with self._lock:
            if trainer in self._jobs.get(trainer.job, []):
                self._jobs[trainer.job].remove(trainer)
                if not self._jobs[trainer.job]:
                    del self._jobs[trainer.job]

    def on_report(self, trainer: ConnectedTrainer, report: TrainerReport) -> ServerReport | None:
        """Keeps a trainer's report and returns the answer; None if the last one is too new."""
        now = self._clock()
        with self._lock:
            last = trainer.report_at
            if last is not None and now < last + _MIN_REPORT_INTERVAL_SECONDS:
                return None
            trainer.on_report(report, now)
            job = list(self._jobs.get(trainer.job, [trainer]))
        others = [
            RankReport(other.rank, other.report)
            for other in job
            if other.rank != trainer.rank and other.report is not None
        ]
        worst = max(others, key=lambda other: other.report.wait_share, default=None)
        return replace(self._report_for(job), worst=worst)

    def drop_old_reports(self) -> None:
        """Forgets reports that no other one has followed for long."""
        limit = self._clock() - _REPORT_LIFE_SECONDS
        for trainer in self.trainers():
            if trainer.report_at is not None and trainer.report_at <= limit:
                trainer.report = None

    def trainers(self) -> list[ConnectedTrainer]:
        """Returns the streams in the order of jobs and ranks."""
        with self._lock:
            trainers = list(chain.from_iterable(self._jobs.values()))
        return sorted(trainers, key=lambda trainer: (trainer.job.id, trainer.rank))

    def to_json(self, pipeline: str) -> list[dict[str, Any]]:
        """Returns the jobs of a pipeline for JSON, each with its report and its ranks."""
        streams = [stream for stream in self.trainers() if stream.job.pipeline == pipeline]
        now = self._clock()
        return [
            {
                "id": job.id,
                "seed": job.seed,
                "batch_size": job.batch_size,
                "world_size": job.world_size,
                "report": self._report_for(ranks).to_json(),
                "trainers": [trainer.to_json(now) for trainer in ranks],
            }
            for job, group in itertools.groupby(streams, key=lambda stream: stream.job)
            for ranks in [list(group)]
        ]

    def _report_for(self, trainers: Sequence[ConnectedTrainer]) -> ServerReport:
        """Returns the report on the time that the trainers of one job have reported on."""
        reports = [trainer.report for trainer in trainers if trainer.report is not None]
        seconds = max((report.seconds for report in reports), default=0.0)
        report = self._server_report(trainers[0].job.pipeline, seconds)
        held: dict[str, float] = {}
        for name, share in chain.from_iterable(trainer.held_shares.items() for trainer in trainers):
            held[name] = max(held.get(name, 0.0), report.seconds * share)
        return replace(report, **held)  # type: ignore[arg-type]
