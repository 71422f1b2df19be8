"""Concurrent trainer processes that measure over the same window of time."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from benchmarks.consume import Run, Task
from benchmarks.processes import LINE_TIMEOUT_SECONDS, started
from tests.harness.spawned import SpawnedProcess

_LEAD_SECONDS = 0.2
"""Time from sending a window to its begin, so that every trainer has received it."""

_seeds = itertools.count(1)
"""Unique seeds of all trainers, so that no server has cached their batches."""


@contextmanager
def trainers(task: Task, count: int = 1) -> Iterator[list[SpawnedProcess]]:
    """Runs `count` trainers and yields them once they are warm."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(started("benchmarks.consume", str(replace(task, seed=seed))))
            for seed in itertools.islice(_seeds, count)
        ]
        for trainer in running:
            trainer.read_line(LINE_TIMEOUT_SECONDS + task.warm_up)
        yield running
        for trainer in running:
            trainer.finish()


def measure(running: list[SpawnedProcess], seconds: float) -> list[Run]:
    """Returns each trainer's run over the next `seconds`; the trainers are idle afterwards."""
    begin = time.monotonic() + _LEAD_SECONDS
    for trainer in running:
        trainer.send_line(f"{begin} {begin + seconds}")
    return [
        Run(**json.loads(trainer.read_line(LINE_TIMEOUT_SECONDS + seconds))) for trainer in running
    ]
