"""The cost of reading: the source, and the user's functions that run where it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np

from infeed.shared.errors import InfeedError
from infeed.shared.spec import Array
from infeed_server.profile.clock import Clock
from infeed_server.profile.figures import Cost

READ_THREADS = 4
"""Threads that read, as in the indexed engine."""

_MIN_BATCHES = 2 * READ_THREADS

Read = Callable[[Array], int]
"""Reads samples by index; returns how many of them could be read."""


def read_cost(clock: Clock, read: Read, batches: Iterator[Array], seconds: float) -> Cost:
    """Reads batches with the threads of the engine, for so many seconds.

    `elapsed` is per sample with all threads at work. Raises `SourceError` for a fault of storage.
    """
    count = 0
    cpu, delay, begin = clock.total_cpu(), clock.total_delay(), clock.wall()
    with ThreadPoolExecutor(READ_THREADS, "infeed-profile-read") as pool:
        while True:
            count += sum(pool.map(read, list(islice(batches, _MIN_BATCHES))))
            if clock.wall() - begin >= seconds:
                break
        elapsed = clock.wall() - begin
        # Before the threads end: the kernel forgets what they waited.
        waited, used = clock.total_delay() - delay, clock.total_cpu() - cpu
    count = max(count, 1)
    return Cost(used / count, elapsed / count, waited / count)


def readable(read: Callable[[Array], object]) -> Read:
    """Returns a function that reads samples, and one by one where one of them is bad."""

    def run(index: Array) -> int:
        try:
            read(index)
            return len(index)
        except InfeedError:
            good = 0
            for each in index:
                try:
                    read(np.array([each], np.int64))
                    good += 1
                except InfeedError:
                    continue
            return good

    return run
