"""Two sides in turn, A B A B, in pairs."""

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
"""Of trainers that ran at the same time."""


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    pairs: int
    """That are counted; one more goes before."""
    seconds: float
    """That each run counts."""


@dataclass(frozen=True)
class Side:
    """Trainers of one kind on a server of theirs."""

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
    """A measure, and what its ratio is to reach."""

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
    """Both sides' figures; one server serves both where it is the same."""
    with ExitStack() as stack:
        mine = stack.enter_context(ours.server()).address
        is_shared = theirs.server is ours.server
        other = mine if is_shared else stack.enter_context(theirs.server()).address
        pairs = [
            (ours.run(mine, plan.seconds), theirs.run(other, plan.seconds))
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
    """Raises `BenchmarkError` where the two sides' images differ in size."""
    mine, other = (runs[0].bytes / runs[0].images for runs in pair)
    if round(mine) != round(other):
        raise BenchmarkError(
            f"{ours.name} delivers {mine:.0f} bytes an image and {theirs.name} {other:.0f}"
        )
