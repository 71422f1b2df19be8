"""Jobs: the trainers that are connected, by the job whose ranks they are, with their reports."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from infeed.shared.report import REPORT_INTERVAL_SECONDS, RankReport, ServerReport, TrainerReport
from infeed.shared.sliding_window import SlidingWindow

_EARLY_SHARE = 0.5
"""Of the interval between two reports, after which the next one is taken: clocks differ."""

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
        return (
            f"{self.pipeline}-{self.seed}-{self.batch_size}x{self.world_size}{name}-{self.number}"
        )


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
    shortage: Callable[[], float] = lambda: 0.0
    """Returns the seconds so far in which only the memory limit kept a request waiting."""
    shortage_share: float = 0.0
    """Share of the last seconds, as of its last report."""
    _shortages: SlidingWindow = field(default_factory=SlidingWindow)

    def on_report(self, report: TrainerReport, now: float) -> None:
        """Keeps a report, and what the memory limit did meanwhile."""
        self.report, self.report_at = report, now
        counters = {"seconds": self.shortage()}
        self._shortages.sample(now, counters)
        seconds, grown = self._shortages.difference(now, counters)
        self.shortage_share = min(1.0, grown["seconds"] / seconds) if seconds else 0.0


ReportOf = Callable[[str, float], ServerReport]
"""Returns the report on a pipeline's last seconds, at most so many."""


class Jobs:
    """The connected trainers of a server. Thread-safe."""

    def __init__(
        self,
        server_report: ReportOf,
        clock: Callable[[], float] = time.monotonic,
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
        shortage: Callable[[], float] = lambda: 0.0,
    ) -> ConnectedTrainer:
        """Adds a stream: of the first equal job in which no other feed has the rank."""
        with self._lock:
            jobs = (replace(key, number=number) for number in itertools.count())
            job = next(
                job
                for job in jobs
                if all(
                    one.rank != rank or one.feed_id == feed_id for one in self._jobs.get(job, ())
                )
            )
            now = self._clock()
            trainer = ConnectedTrainer(job, rank, feed_id, peer, now, shortage=shortage)
            self._jobs.setdefault(job, []).append(trainer)
            return trainer

    def disconnect(self, trainer: ConnectedTrainer) -> None:
        """Removes a stream. Idempotent."""
        with self._lock:
            others = [one for one in self._jobs.get(trainer.job, ()) if one is not trainer]
            if others:
                self._jobs[trainer.job] = others
            else:
                self._jobs.pop(trainer.job, None)

    def on_report(self, trainer: ConnectedTrainer, report: TrainerReport) -> ServerReport | None:
        """Keeps a trainer's report and returns the answer; None if the last one is too new."""
        now = self._clock()
        with self._lock:
            interval = _EARLY_SHARE * REPORT_INTERVAL_SECONDS
            if trainer.report_at is not None and now < trainer.report_at + interval:
                return None
            trainer.on_report(report, now)
            # Of its own job alone: each of a thousand trainers reports every second.
            job = self._jobs.get(trainer.job, [trainer])
            others = [
                RankReport(one.rank, one.report)
                for one in job
                if one.rank != trainer.rank and one.report is not None
            ]
            answer = self._report_for(job)
        worst = max(others, key=lambda one: one.report.wait_share, default=None)
        return replace(answer, worst=worst)

    def drop_old_reports(self) -> None:
        """Forgets reports that no other one has followed for long."""
        limit = self._clock() - _REPORT_LIFE_SECONDS
        with self._lock:
            for one in itertools.chain.from_iterable(self._jobs.values()):
                if one.report_at is not None and one.report_at <= limit:
                    one.report = None

    def trainers(self) -> list[ConnectedTrainer]:
        """Returns the streams in the order of jobs and ranks."""
        with self._lock:
            jobs = sorted(self._jobs.items(), key=lambda one: one[0].id)
            ranks = [sorted(trainers, key=lambda one: one.rank) for _, trainers in jobs]
            return list(itertools.chain.from_iterable(ranks))

    def to_json(self, pipeline: str) -> list[dict[str, Any]]:
        """Returns the jobs of a pipeline for JSON, each with its report and its ranks."""
        streams = [stream for stream in self.trainers() if stream.job.pipeline == pipeline]
        jobs = itertools.groupby(streams, key=lambda stream: stream.job)
        return [self._job_json(list(trainers)) for _, trainers in jobs]

    def _report_for(self, trainers: Sequence[ConnectedTrainer]) -> ServerReport:
        """Returns the report on the time that the trainers of one job have reported on."""
        reports = [trainer.report for trainer in trainers if trainer.report is not None]
        seconds = max((report.seconds for report in reports), default=0.0)
        report = self._server_report(trainers[0].job.pipeline, seconds)
        shortage = report.seconds * max(one.shortage_share for one in trainers)
        return replace(report, shortage_seconds=shortage)

    def _job_json(self, trainers: Sequence[ConnectedTrainer]) -> dict[str, Any]:
        job = trainers[0].job
        return {
            "id": job.id,
            "seed": job.seed,
            "batch_size": job.batch_size,
            "world_size": job.world_size,
            "report": self._report_for(trainers).to_json(),
            "trainers": [self._trainer_json(one) for one in trainers],
        }

    def _trainer_json(self, trainer: ConnectedTrainer) -> dict[str, Any]:
        with self._lock:
            report, report_at = trainer.report, trainer.report_at
        now = self._clock()
        return {
            "rank": trainer.rank,
            "feed": trainer.feed_id[:8],
            "peer": trainer.peer,
            "connected_seconds": now - trainer.opened_at,
            "sent_position": trainer.position,
            "report_age_seconds": None if report_at is None else now - report_at,
            "report": None if report is None else report.to_json(),
            "wait_share": None if report is None else report.wait_share,
            "step_seconds": None if report is None else report.step_seconds,
        }
