"""Repeated timing: the median cost of several rounds, which a disturbance does not change."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from infeed_server.profile.clock import Clock
from infeed_server.profile.figures import Cost

_MIN_ROUNDS = 3

_MIN_ROUND_SECONDS = 0.05
"""The length of a round: long beside the resolution of the clocks and of the scheduler."""


def median_cost(clock: Clock, run: Callable[[], int], seconds: float) -> Cost:
    """Calls `run`, which returns its number of samples, for so many seconds. Returns the medians.

    The first call is a warm-up. The spread is the distance between the quartiles of CPU time.
    """
    run()
    cpu: list[float] = []
    elapsed: list[float] = []
    delay_before, total = clock.total_delay(), 0
    end = clock.wall() + seconds
    while len(cpu) < _MIN_ROUNDS or clock.wall() < end:
        wall_before, cpu_before = clock.wall(), clock.cpu()
        count = 0
        while not count or clock.wall() - wall_before < _MIN_ROUND_SECONDS:
            count += run()
        total += count
        cpu.append((clock.cpu() - cpu_before) / count)
        elapsed.append((clock.wall() - wall_before) / count)
    delay = (clock.total_delay() - delay_before) / total
    first, median, third = statistics.quantiles(cpu, n=4, method="inclusive")
    return Cost(median, statistics.median(elapsed), delay, third - first)
