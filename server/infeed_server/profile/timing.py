"""Timing: what a sample costs, in the median of several rounds, or read by several threads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from infeed.shared.spec import Array
from infeed_server.observe.usage import cpu_seconds
from infeed_server.profile.figures import Cost
from infeed_server.profile.samples import KeptSamples, StepFunction, unchanged

_MIN_ROUNDS = 3

_MIN_ROUND_SECONDS = 0.05
"""Length of a round: shorter ones are in the error of the clocks and of the scheduler."""

_READ_THREADS = 4
"""Threads that read, as in the indexed engine."""


@dataclass(frozen=True)
class Timing:
    """How each stage is timed: for so many seconds, in graphs with so many cores."""

    seconds: float
    cores: int

    def median(self, run: Callable[[], int], share: float = 1.0) -> Cost:
        """Calls `run`, which returns its number of samples, again and again; returns the medians.

        The first call is a warm-up. It takes `share` of the time of a stage.
        """
        run()
        costs: list[Cost] = []
        end = time.perf_counter() + share * self.seconds
        while len(costs) < _MIN_ROUNDS or time.perf_counter() < end:
            wall, cpu, count = time.perf_counter(), time.process_time(), 0
            while not count or time.perf_counter() - wall < min(_MIN_ROUND_SECONDS, self.seconds):
                count += run()
            elapsed = time.perf_counter() - wall
            costs.append(Cost((time.process_time() - cpu) / count, elapsed / count))
        cpus, times = zip(*costs, strict=True)
        return Cost(statistics.median(cpus), statistics.median(times))

    def of_function(self, kept: KeptSamples, function: StepFunction) -> Cost:
        """Returns what a function costs in a graph, without tf.data's own part."""
        around = self.median(kept.rounds(unchanged, self.cores), 1 / 3)
        return self.median(kept.rounds(function, self.cores)).minus(around)

    def of_reading(self, read: Callable[[Array], int], batches: Iterator[Array]) -> Cost:
        """Reads batches with the threads of the engine; `read` returns how many samples were good.

        The CPU time includes worker processes.
        """
        count = 0
        cpu, begin = cpu_seconds(), time.perf_counter()
        with ThreadPoolExecutor(_READ_THREADS, "infeed-profile-read") as pool:
            while not count or time.perf_counter() - begin < self.seconds:
                count += max(1, sum(pool.map(read, islice(batches, 2 * _READ_THREADS))))
        return Cost((cpu_seconds() - cpu) / count, (time.perf_counter() - begin) / count)
