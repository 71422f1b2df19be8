"""Figures of trainers: utilisation and waits, from the steps in the measured time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from infeed.shared.report import ServerReport, TrainerReport, merge_processes
from infeed.shared.spec import Array
from infeed.stats import STARVED_THRESHOLD_SECONDS
from infeed_tools.loadtest.tally import TimedReport, Trainer


@dataclass(frozen=True)
class Figures:
    """The figures of one trainer, or of all together. Times are in seconds."""

    steps: int
    utilisation: float | None
    """Compute ÷ time, 0 to 1, as defined by DLIO and MLPerf Storage; None without compute."""
    wait_p50: float
    wait_p99: float
    wait_max: float
    starved_steps: int
    """Steps that waited for more than a millisecond."""
    starved_share: float
    """Share of the steps that waited, 0 to 1."""
    step_seconds: float
    """Mean time of a step without its wait."""
    unanswered_seconds: float
    """The longest wait for a batch still missing at the end. The waits include it: otherwise,
    servers that stop for good would not show."""


@dataclass(frozen=True)
class TrainerFigures:
    """The figures of a trainer."""

    rank: int
    figures: Figures
    first_batch_seconds: float | None
    """Time from the start to the first batch; None without one."""
    total_steps: int
    """Steps in the whole test."""
    reconnects: int


@dataclass(frozen=True)
class Measured:
    """The steps of one trainer, or of all, that began and got their batch in the measured time."""

    steps: Array
    unanswered_seconds: Array
    """The waits in the measured time for batches still missing at its end."""

    def figures(self, step_seconds: float) -> Figures:
        """Returns the figures; `step_seconds` is a step's compute on an idle machine."""
        count, busy = len(self.steps), float(self.steps["busy_seconds"].sum())
        waits = np.concatenate([self.steps["wait_seconds"], self.unanswered_seconds])
        starved, total = self._starved, float(waits.sum()) + busy
        p50 = p99 = 0.0
        if len(waits):
            p50, p99 = map(float, np.quantile(waits, [0.5, 0.99], method="higher"))
        utilisation = None
        if step_seconds:
            utilisation = min(1.0, count * step_seconds / total) if total else 0.0
        return Figures(
            steps=count,
            utilisation=utilisation,
            wait_p50=p50,
            wait_p99=p99,
            wait_max=float(waits.max(initial=0.0)),
            starved_steps=starved,
            starved_share=starved / count if count else 0.0,
            step_seconds=busy / count if count else 0.0,
            unanswered_seconds=float(self.unanswered_seconds.max(initial=0.0)),
        )

    def report(self, last: TrainerReport) -> TrainerReport:
        """Returns a report on the measured time: the feed's own covers only its last ten seconds.

        Figures that only the feed knows are extrapolated from its `last` report.
        """
        waited = float(self.steps["wait_seconds"].sum() + self.unanswered_seconds.sum())
        seconds = waited + float(self.steps["busy_seconds"].sum())
        if not seconds or not last.seconds:
            return last
        growth = seconds / last.seconds
        names = ("receive_seconds", "cpu_seconds", "finish_seconds", "bytes")
        return replace(
            last,
            seconds=seconds,
            steps=len(self.steps),
            wait_seconds=waited,
            starved_steps=self._starved,
            **{name: growth * getattr(last, name) for name in names},
        )

    @property
    def _starved(self) -> int:
        return int((self.steps["wait_seconds"] > STARVED_THRESHOLD_SECONDS).sum())


def measured(trainer: Trainer, begin: float, end: float) -> Measured:
    """Returns the steps of a trainer from one monotonic time to another."""
    steps = trainer.steps
    received_at = steps["requested_at"] + steps["wait_seconds"]
    inside = (steps["requested_at"] >= begin) & (received_at <= end)
    unanswered = np.empty(0)
    if trainer.points and trainer.last is not None:  # not its first batch
        at = trainer.last.unanswered_at
        unanswered = unanswered if at is None else np.maximum(0.0, [end - max(begin, at)])
    return Measured(steps[inside], unanswered)


def trainer_figures(trainer: Trainer, made: Measured, step_seconds: float) -> TrainerFigures:
    """Returns the figures of a trainer from its steps in the measured time."""
    first, last = trainer.first, trainer.last
    return TrainerFigures(
        rank=trainer.rank,
        figures=made.figures(step_seconds),
        first_batch_seconds=None if first is None else first.at - trainer.started_at,
        total_steps=sum(len(steps) for steps, _ in trainer.points),
        reconnects=last.stats.reconnects if last else 0,
    )


def last_report(reports: Sequence[TimedReport]) -> ServerReport:
    """Returns the last report of a server, merged over its processes without those that are gone.

    A server without `--processes` counts as the same one after a restart.
    """
    last: dict[int, TimedReport] = {}
    for at, report in reports:
        last[report.process_id if report.processes > 1 else 0] = (at, report)
    latest = [report for _, report in sorted(last.values(), key=lambda timed: timed[0])]
    return merge_processes(latest[-latest[-1].processes :])
