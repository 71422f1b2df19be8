"""Jobs: the trainers that are connected, by the job whose ranks they are, with their reports."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from infeed.report import REPORT_INTERVAL_SECONDS, RankReport, ServerReport, TrainerReport
from infeed.verdict import Verdict, judge

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
    position: Callable[[], int | None]
    """Returns the end of the last batch that was sent."""
    report: TrainerReport | None = None
    """Its last report; None before the first, and when that is too old."""
    report_at: float | None = None


class Jobs:
    """The connected trainers of a server. Thread-safe."""

    def __init__(
        self,
        server_report: Callable[[str], ServerReport],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`server_report` returns the report of a pipeline."""
        self._server_report = server_report
        self._clock = clock
        self._jobs: dict[JobKey, list[ConnectedTrainer]] = {}
        self._lock = threading.Lock()

    def connect(
        self, key: JobKey, rank: int, feed_id: str, peer: str, position: Callable[[], int | None]
    ) -> ConnectedTrainer:
        """Adds a stream: of the first equal job in which no other feed has the rank."""
        with self._lock:
            jobs = (replace(key, number=number) for number in itertools.count())
            job = next(
                job
                for job in jobs
                if all(
                    each.rank != rank or each.feed_id == feed_id for each in self._jobs.get(job, ())
                )
            )
            trainer = ConnectedTrainer(job, rank, feed_id, peer, self._clock(), position)
            self._jobs.setdefault(job, []).append(trainer)
            return trainer

    def disconnect(self, trainer: ConnectedTrainer) -> None:
        """Removes a stream. Idempotent."""
        with self._lock:
            others = [each for each in self._jobs.get(trainer.job, ()) if each is not trainer]
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
            trainer.report, trainer.report_at = report, now
            # Of its own job alone: each of a thousand trainers reports every second.
            others = [
                (each.rank, each.report)
                for each in self._jobs.get(trainer.job, ())
                if each.rank != trainer.rank and each.report is not None
            ]
        answer = self._server_report(trainer.job.pipeline)
        worst = max(others, key=lambda each: each[1].wait_share, default=None)
        return replace(answer, worst=None if worst is None else RankReport(*worst))

    def drop_old_reports(self) -> None:
        """Forgets reports that no other one has followed for long."""
        limit = self._clock() - _REPORT_LIFE_SECONDS
        with self._lock:
            for each in itertools.chain.from_iterable(self._jobs.values()):
                if each.report_at is not None and each.report_at <= limit:
                    each.report = None

    def trainers(self) -> list[ConnectedTrainer]:
        """Returns the streams in the order of jobs and ranks."""
        with self._lock:
            jobs = sorted(self._jobs.items(), key=lambda each: each[0].id)
            ranks = [sorted(trainers, key=lambda each: each.rank) for _, trainers in jobs]
            return list(itertools.chain.from_iterable(ranks))

    def to_json(self, pipeline: str) -> list[dict[str, Any]]:
        """Returns the jobs of a pipeline for JSON, each with its verdict and its ranks."""
        streams = [each for each in self.trainers() if each.job.pipeline == pipeline]
        groups = itertools.groupby(streams, key=lambda each: each.job)
        return [self._job_json(job, list(trainers)) for job, trainers in groups]

    def verdict(self, pipeline: str, trainers: Iterable[ConnectedTrainer]) -> Verdict:
        """Returns the verdict on the ranks of one job."""
        trainers = list(trainers)
        world_size = trainers[0].job.world_size if trainers else 1
        return judge(rank_reports(trainers), world_size, [self._server_report(pipeline)])

    def _job_json(self, job: JobKey, trainers: list[ConnectedTrainer]) -> dict[str, Any]:
        return {
            "id": job.id,
            "seed": job.seed,
            "batch_size": job.batch_size,
            "world_size": job.world_size,
            "verdict": self.verdict(job.pipeline, trainers).to_json(),
            "trainers": [self._trainer_json(each) for each in trainers],
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
            "sent_position": trainer.position(),
            "report_age_seconds": None if report_at is None else now - report_at,
            "report": None if report is None else report.to_json(),
            "wait_share": None if report is None else report.wait_share,
            "step_seconds": None if report is None else report.step_seconds,
        }


def rank_reports(trainers: Iterable[ConnectedTrainer]) -> list[RankReport]:
    """Returns the last report of each trainer that has sent one."""
    return [RankReport(each.rank, each.report) for each in trainers if each.report is not None]


def worst_wait(pipeline: str, trainers: Iterable[ConnectedTrainer]) -> float | None:
    """Returns the largest wait share of a pipeline's trainers; None without a report."""
    reports = [each.report for each in trainers if each.job.pipeline == pipeline and each.report]
    return max((each.wait_share for each in reports if each.seconds), default=None)
