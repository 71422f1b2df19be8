"""Jobs: the connected trainers, grouped by job, with their reports."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from infeed.shared.report import REPORT_INTERVAL_SECONDS, RankReport, ServerReport, TrainerReport
from infeed.shared.sliding_window import SlidingWindow
from infeed_observe.views import JobView, TrainerView, one_of_each_feed
from infeed_server.serving.instrument import ConnectedTrainer

_MIN_REPORT_INTERVAL_SECONDS = 0.5 * REPORT_INTERVAL_SECONDS
"""Seconds between accepted reports: less than the trainers' interval, because clocks differ."""

_REPORT_LIFE_SECONDS = 15.0
"""Age at which a report is dropped. A trainer reports every second, however long its steps take:
without reports it is stopped or its connection hangs, and a proxy may keep its stream open."""

_MAX_FEED_ID_CHARS = 8

ReportOf = Callable[[str, float], ServerReport]
"""A function of a pipeline and a number of seconds: the report on at most its last seconds."""


@dataclass(eq=False)
class _Seat:
    """A trainer's place in a job, and its last report. Equal jobs differ in their number."""

    trainer: ConnectedTrainer
    base: str
    """The part that the ids of equal jobs share."""
    number: int
    opened_at: float
    report: TrainerReport | None = None
    """Its last report; None before the first, and once the last is too old."""
    report_at: float | None = None
    held_shares: Mapping[str, float] = field(default_factory=dict)
    """Its stream's held time as shares of the last seconds, at its last report."""
    _held: SlidingWindow = field(default_factory=SlidingWindow)

    @property
    def job(self) -> tuple[str, str, int]:
        return self.trainer.pipeline, self.base, self.number

    def on_report(self, report: TrainerReport, now: float) -> None:
        """Keeps a report, and the stream's shares of held time up to it."""
        self.report, self.report_at = report, now
        counters = self.trainer.held()
        self._held.sample(now, counters)
        seconds, grown = self._held.difference(now, counters)
        self.held_shares = {
            name: min(1.0, value / seconds) if seconds else 0.0 for name, value in grown.items()
        }

    def view(self, now: float) -> TrainerView:
        return TrainerView(
            rank=self.trainer.rank,
            feed=self.trainer.feed_id[:_MAX_FEED_ID_CHARS],
            peer=self.trainer.peer,
            connected_seconds=now - self.opened_at,
            sent_position=self.trainer.position,
            report_age_seconds=None if self.report_at is None else now - self.report_at,
            report=self.report,
        )


class Jobs:
    """The connected trainers of a server. Thread-safe."""

    def __init__(
        self, server_report: ReportOf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server_report = server_report
        self._clock = clock
        self._seats: dict[ConnectedTrainer, _Seat] = {}
        self._lock = threading.Lock()

    def connect(self, trainer: ConnectedTrainer) -> None:
        """Adds a stream to the first equal job in which no other feed has its rank."""
        with self._lock:
            base = _base(trainer)
            taken = {
                seat.number
                for seat in self._seats.values()
                if (seat.trainer.pipeline, seat.base) == (trainer.pipeline, base)
                and seat.trainer.rank == trainer.rank
                and seat.trainer.feed_id != trainer.feed_id
            }
            number = next(number for number in itertools.count() if number not in taken)
            self._seats[trainer] = _Seat(trainer, base, number, self._clock())

    def disconnect(self, trainer: ConnectedTrainer) -> None:
        """Removes a stream. Idempotent."""
        with self._lock:
            self._seats.pop(trainer, None)

    def on_report(self, trainer: ConnectedTrainer, report: TrainerReport) -> ServerReport | None:
        """Keeps a trainer's report and returns the answer; None if it comes too soon after the last
        one, or the trainer has left."""
        now = self._clock()
        with self._lock:
            seat = self._seats.get(trainer)
            if seat is None:
                return None
            last = seat.report_at
            if last is not None and now < last + _MIN_REPORT_INTERVAL_SECONDS:
                return None
            seat.on_report(report, now)
            job = [other for other in self._seats.values() if other.job == seat.job]
        others = [
            RankReport(other.trainer.rank, other.report)
            for other in job
            if other.trainer.rank != trainer.rank and other.report is not None
        ]
        worst = max(others, key=lambda other: other.report.wait_share, default=None)
        return replace(self._report_for(job), worst=worst)

    def drop_old_reports(self) -> None:
        """Drops each report that no later one has followed for `_REPORT_LIFE_SECONDS`."""
        limit = self._clock() - _REPORT_LIFE_SECONDS
        for seat in self._sorted():
            if seat.report_at is not None and seat.report_at <= limit:
                seat.report = None

    def views(self, pipeline: str) -> list[JobView]:
        """Returns the jobs of a pipeline, with their reports and ranks."""
        seats = [seat for seat in self._sorted() if seat.trainer.pipeline == pipeline]
        now = self._clock()
        grouped = itertools.groupby(seats, key=lambda seat: seat.job)
        return [
            JobView(
                f"{base}-{number}",
                ranks[0].trainer.seed,
                ranks[0].trainer.batch_size,
                ranks[0].trainer.world_size,
                self._report_for(ranks),
                one_of_each_feed(seat.view(now) for seat in ranks),
            )
            for (_, base, number), group in grouped
            for ranks in [list(group)]
        ]

    def _sorted(self) -> list[_Seat]:
        """Returns the streams, sorted by job and rank."""
        with self._lock:
            seats = list(self._seats.values())
        return sorted(seats, key=lambda seat: (*seat.job, seat.trainer.rank))

    def _report_for(self, seats: Sequence[_Seat]) -> ServerReport:
        """Returns the server's report on the period covered by the reports of a job's trainers."""
        reports = [seat.report for seat in seats if seat.report is not None]
        seconds = max((report.seconds for report in reports), default=0.0)
        report = self._server_report(seats[0].trainer.pipeline, seconds)
        held: dict[str, Any] = {}
        for seat in seats:
            for name, share in seat.held_shares.items():
                held[name] = max(held.get(name, 0.0), report.seconds * share)
        return replace(report, **held)


def _base(trainer: ConnectedTrainer) -> str:
    name = f"-{trainer.job_name}" if trainer.job_name else ""
    size = f"{trainer.batch_size}x{trainer.world_size}"
    return f"{trainer.pipeline}-{trainer.seed}-{size}{name}"
