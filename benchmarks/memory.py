"""What server and trainer hold in memory: while batches flow, and while none is asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from benchmarks.arrays import uint8_batch
from benchmarks.consume import Task
from benchmarks.duel import Plan, Side
from benchmarks.findings import Figures, Finding
from benchmarks.resident import resident_megabytes
from benchmarks.trainers import measure, trainers

_LOOKS = 10
"""At the memory, in each state."""

_SETTLE_SECONDS = 3.0
"""From the last batch that a trainer takes until all that comes ahead of it has come."""


@dataclass(frozen=True)
class Sizes:
    """MB of their own, on top of what each process had before they met."""

    server_flowing: float
    trainer_flowing: float
    server_stopped: float
    trainer_stopped: float
    server_idle: float
    trainer_idle: float


def compare(ours: Side, theirs: Side, plan: Plan) -> list[Finding]:
    """Each run has a server of its own: what an earlier trainer left would be counted."""
    pairs = [(_sizes(ours, plan.seconds), _sizes(theirs, plan.seconds)) for _ in range(plan.pairs)]
    mine, others = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def finding(measure: str, part: str, note: str) -> Finding:
        return Finding(
            measure,
            Figures(ours.name, [getattr(sizes, part) for sizes in mine]),
            Figures(theirs.name, [getattr(sizes, part) for sizes in others]),
            more_is_better=False,
            note=note,
        )

    above = (
        f"above an idle server of {median(sizes.server_idle for sizes in mine):.0f} MB and a "
        f"trainer of {median(sizes.trainer_idle for sizes in mine):.0f} MB; {_window()}"
    )
    return [
        finding("MB server, flowing", "server_flowing", above),
        finding("MB trainer, flowing", "trainer_flowing", above),
        finding("MB server, trainer stopped", "server_stopped", above),
        finding("MB trainer, stopped", "trainer_stopped", above),
    ]


def _sizes(side: Side, seconds: float) -> Sizes:
    with side.server() as server:
        server_idle = resident_megabytes(*server.pids)
        task = Task(side.kind, server.address, side.dataset, side.compression)
        with trainers(task) as running:
            (trainer,) = running
            flowing = _look(server.pids, trainer.pid, seconds)
            (run,) = measure(running, 0.5)
            time.sleep(_SETTLE_SECONDS)
            stopped = _look(server.pids, trainer.pid, 1.0)
    return Sizes(
        flowing[0] - server_idle,
        flowing[1] - run.idle_megabytes,
        stopped[0] - server_idle,
        stopped[1] - run.idle_megabytes,
        server_idle,
        run.idle_megabytes,
    )


def _look(server: tuple[int, ...], trainer: int, seconds: float) -> tuple[float, float]:
    """The most of each within these seconds."""
    looks = []
    for _ in range(_LOOKS):
        time.sleep(seconds / _LOOKS)
        looks.append((resident_megabytes(*server), resident_megabytes(trainer)))
    return max(server for server, _ in looks), max(trainer for _, trainer in looks)


def _window() -> str:
    """How far ahead infeed asks by default."""
    from infeed.feed import PREFETCH_BYTES

    batch = uint8_batch().nbytes
    return (
        f"window {PREFETCH_BYTES / 1e6:.0f} MB, {PREFETCH_BYTES // batch} batches of "
        f"{batch / 1e6:.1f} MB"
    )
