"""Timing: what a sample costs, in the median of several rounds, or read by several threads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from infeed.shared.spec import Array
from infeed_server.observe.usage import cpu_seconds
from infeed_server.profile.figures import Cost
from infeed_server.sources.base import READ_THREADS

_MIN_ROUNDS = 3

_MIN_ROUND_SECONDS = 0.05
"""Length of a round: shorter ones are in the error of the clocks and of the scheduler."""


def median_cost(run: Callable[[], int], seconds: float) -> Cost:
    """Calls `run`, which returns its number of samples, for so many seconds; returns the medians.
    The first call is a warm-up."""
    run()
    costs: list[Cost] = []
    end = time.perf_counter() + seconds
    while len(costs) < _MIN_ROUNDS or time.perf_counter() < end:
        wall, cpu, count = time.perf_counter(), time.process_time(), 0
        while not count or time.perf_counter() - wall < min(_MIN_ROUND_SECONDS, seconds):
            count += run()
        elapsed = time.perf_counter() - wall
        costs.append(Cost((time.process_time() - cpu) / count, elapsed / count))
    cpus, times = zip(*costs, strict=True)
    return Cost(statistics.median(cpus), statistics.median(times))


def reading_cost(read: Callable[[Array], int], batches: Iterator[Array], seconds: float) -> Cost:
    """Reads batches with the threads of the engine; `read` returns how many samples were good. The
    CPU time includes worker processes."""
    count = 0
    cpu, begin = cpu_seconds(), time.perf_counter()
    with ThreadPoolExecutor(READ_THREADS, "infeed-profile-read") as pool:
        while not count or time.perf_counter() - begin < seconds:
            count += max(1, sum(pool.map(read, islice(batches, 2 * READ_THREADS))))
    return Cost((cpu_seconds() - cpu) / count, (time.perf_counter() - begin) / count)
