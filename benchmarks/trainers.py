"""Trainers: several processes of consume.py, which count over the same window of time."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from benchmarks.consume import Run, Task
from benchmarks.processes import PATIENCE, started
from tests.harness.spawned import SpawnedProcess

_AHEAD = 0.2
"""Seconds from the agreement on a window to its begin."""

_seeds = itertools.count(1)
"""One for each trainer that ever runs, so that no server has its batches ready."""


@contextmanager
def trainers(task: Task, count: int = 1) -> Iterator[list[SpawnedProcess]]:
    """`count` trainers, warm and taking batches."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(started("benchmarks.consume", str(replace(task, seed=seed))))
            for seed in itertools.islice(_seeds, count)
        ]
        for trainer in running:
            trainer.read_line(PATIENCE + task.warm_up)
        yield running
        for trainer in running:
            trainer.finish()


def measure(running: list[SpawnedProcess], seconds: float) -> list[Run]:
    """What each got in the next `seconds`; they ask for nothing from then on."""
    begin = time.monotonic() + _AHEAD
    for trainer in running:
        trainer.send_line(f"{begin} {begin + seconds}")
    return [Run(**json.loads(trainer.read_line(PATIENCE + seconds))) for trainer in running]
