"""Concurrent trainer processes that measure over the same window of time."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks.consume import Run, Task
from benchmarks.processes import LINE_TIMEOUT_SECONDS, started
from benchmarks.resident import cpu_seconds
from tests.harness.spawned import SpawnedProcess

_LEAD_SECONDS = 0.2
"""Time from sending a window to its start, so that every trainer has received it."""

_seeds = itertools.count(1)
"""Unique seeds of all trainers, so that no server has cached their batches."""


@contextmanager
def trainers(
    task: Task, count: int = 1, *, one_seed: bool = False
) -> Iterator[list[SpawnedProcess]]:
    """Runs `count` trainers, each with its own seed or all with one, and yields them once they are
    warm."""
    seeds = [next(_seeds)] * count if one_seed else itertools.islice(_seeds, count)
    with ExitStack() as stack:
        running = [
            stack.enter_context(started("benchmarks.consume", str(replace(task, seed=seed))))
            for seed in seeds
        ]
        for trainer in running:
            trainer.read_line(LINE_TIMEOUT_SECONDS + task.warm_up)
        yield running
        for trainer in running:
            trainer.finish()


@dataclass(frozen=True)
class Measured:
    """Measurements over one window of time."""

    runs: list[Run]
    """One per trainer."""
    server_cpu_seconds: float
    """Processor time of the server's processes in the window."""
    trainer_cpu_seconds: float = 0.0
    """Processor time of the trainers and of their worker processes in the window."""


def measure(
    running: list[SpawnedProcess], seconds: float, server_pids: Sequence[int] = ()
) -> Measured:
    """Measures the trainers over the next `seconds`; they are idle afterwards."""
    begin = time.monotonic() + _LEAD_SECONDS
    for trainer in running:
        trainer.send_line(f"{begin} {begin + seconds}")
    trainer_pids = [trainer.pid for trainer in running]
    _sleep_until(begin)
    server_cpu, trainer_cpu = cpu_seconds(*server_pids), cpu_seconds(*trainer_pids)
    _sleep_until(begin + seconds)
    server_cpu = cpu_seconds(*server_pids) - server_cpu
    trainer_cpu = cpu_seconds(*trainer_pids) - trainer_cpu
    timeout = LINE_TIMEOUT_SECONDS + seconds
    runs = [Run(**json.loads(trainer.read_line(timeout))) for trainer in running]
    return Measured(runs, server_cpu, trainer_cpu)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
