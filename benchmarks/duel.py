"""Paired comparison of two sides that alternate, A B A B."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.consume import Task
from benchmarks.findings import Figures, Finding, Target
from benchmarks.processes import BenchmarkError
from benchmarks.servers import Running, Server
from benchmarks.trainers import Measured, measure, trainers


@dataclass(frozen=True)
class Plan:
    """The number and length of measurements."""

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
    one_seed: bool = False
    """Whether its trainers request the same batches."""
    is_busy: bool = False
    """Whether each trainer has a busy Python thread."""

    def run(self, server: Running, seconds: float) -> Measured:
        task = Task(
            self.kind,
            server.address,
            self.dataset,
            self.compression,
            warm_up=self.warm_up,
            is_busy=self.is_busy,
        )
        with trainers(task, self.trainers, one_seed=self.one_seed) as running:
            return measure(running, seconds, server.pids)


@dataclass(frozen=True)
class Goal:
    """A measure with its target."""

    measure: str
    of: Callable[[Measured], float]
    target: Target | None = None
    more_is_better: bool = True


def gigabytes_per_second(measured: Measured) -> float:
    return sum(run.bytes / run.seconds for run in measured.runs) / 1e9


def server_cpu_per_image(measured: Measured) -> float:
    """Returns milliseconds of the server's processor time for each delivered image."""
    return 1e3 * measured.server_cpu_seconds / sum(run.images for run in measured.runs)


def images_per_second(measured: Measured) -> float:
    return sum(run.images / run.seconds for run in measured.runs)


def trainer_cpu_per_gigabyte(measured: Measured) -> float:
    return sum(run.cpu_seconds for run in measured.runs) / _gigabytes(measured)


def _gigabytes(measured: Measured) -> float:
    return sum(run.bytes for run in measured.runs) / 1e9


def first_batch_seconds(measured: Measured) -> float:
    return median(run.first_batch_seconds for run in measured.runs)


def duel(ours: Side, theirs: Side, goals: Sequence[Goal], plan: Plan) -> list[Finding]:
    """Runs both sides and returns their figures; sides with the same server share its process."""
    with ExitStack() as stack:
        our_server = stack.enter_context(ours.server())
        is_shared = theirs.server is ours.server
        their_server = our_server if is_shared else stack.enter_context(theirs.server())
        pairs = [
            (ours.run(our_server, plan.seconds), theirs.run(their_server, plan.seconds))
            for _ in range(plan.pairs + 1)
        ][1:]
    _check_same_work(ours, theirs, pairs[0])
    return [
        Finding(
            goal.measure,
            Figures(ours.name, [goal.of(measured) for measured, _ in pairs]),
            Figures(theirs.name, [goal.of(measured) for _, measured in pairs]),
            goal.target,
            goal.more_is_better,
        )
        for goal in goals
    ]


def _check_same_work(ours: Side, theirs: Side, pair: tuple[Measured, Measured]) -> None:
    """Raises `BenchmarkError` if the two sides' images differ in size."""
    runs = (measured.runs[0] for measured in pair)
    our_bytes, their_bytes = (run.bytes_per_image for run in runs)
    if round(our_bytes) != round(their_bytes):
        raise BenchmarkError(
            f"{ours.name} delivers {our_bytes:.0f} bytes an image and "
            f"{theirs.name} {their_bytes:.0f}"
        )
