"""Paired comparison of two sides that run in turn, A B A B."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.consume import Run, Task
from benchmarks.findings import Figures, Finding, Target
from benchmarks.processes import BenchmarkError
from benchmarks.servers import Server
from benchmarks.trainers import measure, trainers

Runs = list[Run]
"""Runs of trainers that ran at the same time."""


@dataclass(frozen=True)
class Plan:
    """Amount of measurement."""

    pairs: int
    """Counted pairs; one uncounted pair runs before them."""
    seconds: float
    """Measured seconds of each run."""


@dataclass(frozen=True)
class Side:
    """Trainers of one kind and their server."""

    name: str
    kind: str
    server: Server
    dataset: str
    compression: str = "none"
    trainers: int = 1
    warm_up: float = 1.0

    def run(self, address: str, seconds: float) -> Runs:
        task = Task(self.kind, address, self.dataset, self.compression, warm_up=self.warm_up)
        with trainers(task, self.trainers) as running:
            return measure(running, seconds)


@dataclass(frozen=True)
class Goal:
    """Measure with its target."""

    measure: str
    of: Callable[[Runs], float]
    target: Target | None = None
    more_is_better: bool = True


def gigabytes_per_second(runs: Runs) -> float:
    return sum(run.bytes / run.seconds for run in runs) / 1e9


def images_per_second(runs: Runs) -> float:
    return sum(run.images / run.seconds for run in runs)


def cpu_seconds_per_gigabyte(runs: Runs) -> float:
    return sum(run.cpu_seconds for run in runs) / sum(run.bytes for run in runs) * 1e9


def first_batch_seconds(runs: Runs) -> float:
    return median(run.first_batch_seconds for run in runs)


def duel(ours: Side, theirs: Side, goals: Sequence[Goal], plan: Plan) -> list[Finding]:
    """Runs both sides and returns their figures; sides with the same server share its process."""
    with ExitStack() as stack:
        our_address = stack.enter_context(ours.server()).address
        is_shared = theirs.server is ours.server
        their_address = our_address if is_shared else stack.enter_context(theirs.server()).address
        pairs = [
            (ours.run(our_address, plan.seconds), theirs.run(their_address, plan.seconds))
            for _ in range(plan.pairs + 1)
        ][1:]
    _check_same_work(ours, theirs, pairs[0])
    return [
        Finding(
            goal.measure,
            Figures(ours.name, [goal.of(runs) for runs, _ in pairs]),
            Figures(theirs.name, [goal.of(runs) for _, runs in pairs]),
            goal.target,
            goal.more_is_better,
        )
        for goal in goals
    ]


def _check_same_work(ours: Side, theirs: Side, pair: tuple[Runs, Runs]) -> None:
    """Raises `BenchmarkError` if the two sides' images differ in size."""
    our_bytes, their_bytes = (runs[0].bytes / runs[0].images for runs in pair)
    if round(our_bytes) != round(their_bytes):
        raise BenchmarkError(
            f"{ours.name} delivers {our_bytes:.0f} bytes an image and "
            f"{theirs.name} {their_bytes:.0f}"
        )
