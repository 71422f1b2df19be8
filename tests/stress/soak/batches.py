"""Soak run of thousands of batches through one server and one trainer."""

from __future__ import annotations

import time

from benchmarks.processes import LINE_TIMEOUT_SECONDS, started
from tests.stress.soak.curve import Check, Curve, Show
from tests.stress.soak.server import COLUMNS, serving
from tests.stress.soak.trainer import Task, query

_SAMPLES = 100


def run(count: int, show: Show) -> list[Check]:
    """Takes `count` batches of 2.4 MB, which the trainer finishes to 9.6 MB."""
    curve = Curve(COLUMNS)
    with serving() as server:
        task = Task(server.address, "small", seed=1)
        with started("tests.stress.soak.trainer", str(task)) as trainer:
            trainer.read_line()
            begin = time.monotonic()
            steps = next_sample = 0
            while steps < count:
                time.sleep(0.05)
                steps = query(trainer).steps
                if steps >= next_sample:
                    next_sample = steps + count // _SAMPLES
                    curve.add(f"{steps:,}", *server.figures(trainer.pid))
                if time.monotonic() > begin + 20 * LINE_TIMEOUT_SECONDS:
                    break
            seconds = time.monotonic() - begin
            trainer.finish()
    show(curve.table(f"{count:,} batches of 2.4 MB in {seconds:.0f} s", "batches"))
    return [
        Check("batches taken", steps, count, at_least=True),
        *(curve.check_flat(column, "batches") for column in COLUMNS),
    ]
