"""Memory of server and trainer while batches flow and while the trainer requests none."""

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

_SAMPLES = 10
"""Memory samples in each state."""

_SETTLE_SECONDS = 3.0
"""Time from the last batch a trainer takes until its prefetch window is full."""


@dataclass(frozen=True)
class Sizes:
    """Private memory in MB."""

    server_flowing: float
    trainer_flowing: float
    server_stopped: float
    trainer_stopped: float
    server_idle: float
    trainer_idle: float


def compare(ours: Side, theirs: Side, plan: Plan) -> list[Finding]:
    """Compares memory; each run has a new server, without memory kept from earlier trainers."""
    pairs = [(_sizes(ours, plan.seconds), _sizes(theirs, plan.seconds)) for _ in range(plan.pairs)]
    our_sizes, their_sizes = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def finding(measure: str, attribute: str, note: str) -> Finding:
        return Finding(
            measure,
            Figures(ours.name, [getattr(sizes, attribute) for sizes in our_sizes]),
            Figures(theirs.name, [getattr(sizes, attribute) for sizes in their_sizes]),
            more_is_better=False,
            note=note,
        )

    note = (
        f"before the connection, {median(sizes.server_idle for sizes in our_sizes):.0f} MB at the "
        f"server, {median(sizes.trainer_idle for sizes in our_sizes):.0f} MB at the trainer; "
        f"{_prefetch_window()}"
    )
    return [
        finding("MB server, flowing", "server_flowing", note),
        finding("MB trainer, flowing", "trainer_flowing", note),
        finding("MB server, trainer stopped", "server_stopped", note),
        finding("MB trainer, stopped", "trainer_stopped", note),
    ]


def _sizes(side: Side, seconds: float) -> Sizes:
    with side.server() as server:
        server_idle = resident_megabytes(*server.pids)
        task = Task(side.kind, server.address, side.dataset, side.compression)
        with trainers(task) as running:
            (trainer,) = running
            flowing = _peak(server.pids, trainer.pid, seconds)
            (run,) = measure(running, 0.5).runs
            time.sleep(_SETTLE_SECONDS)
            stopped = _peak(server.pids, trainer.pid, 1.0)
    return Sizes(
        *flowing,
        *stopped,
        server_idle,
        run.idle_megabytes,
    )


def _peak(server: tuple[int, ...], trainer: int, seconds: float) -> tuple[float, float]:
    """Returns the largest sampled memory of each in this time."""
    samples = []
    for _ in range(_SAMPLES):
        time.sleep(seconds / _SAMPLES)
        samples.append((resident_megabytes(*server), resident_megabytes(trainer)))
    return max(server for server, _ in samples), max(trainer for _, trainer in samples)


def _prefetch_window() -> str:
    """Returns a description of infeed's default prefetch window."""
    from infeed.client import PREFETCH_BYTES

    batch = uint8_batch().nbytes
    return (
        f"window {PREFETCH_BYTES / 1e6:.0f} MB, {PREFETCH_BYTES // batch} batches of "
        f"{batch / 1e6:.1f} MB"
    )
