"""Work meter: how long the workers of a user's Python code have worked, their slowest sample."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_PERIOD_SECONDS = 10.0
"""The slowest sample is one of the last one to two such periods."""


@dataclass(frozen=True)
class PythonWork:
    """The work of the user's Python code so far."""

    workers: int = 0
    """Processes, or one thread; 0: there is no such code."""
    seconds: float = 0.0
    """Time that they worked, summed over them."""
    samples: int = 0
    """Samples that they read."""
    slowest_sample: int = 0
    slowest_seconds: float = 0.0
    """The slowest sample of late and its time; 0: unknown."""


class WorkMeter:
    """Adds up the time of the requests that workers have begun. Thread-safe."""

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._clock = clock
        self._active: set[Hashable] = set()
        self._seconds = 0.0
        self._samples = 0
        self._since = self._period_began = clock()
        self._slowest = self._slowest_before = (0.0, 0)
        self._lock = threading.Lock()

    def begin(self, request: Hashable) -> None:
        """Counts a request from now on. Idempotent: a request can be repeated."""
        with self._lock:
            self._add_up()
            self._active.add(request)

    def end(self, request: Hashable) -> None:
        """Counts a request no longer, if it has begun."""
        with self._lock:
            self._add_up()
            self._active.discard(request)

    def on_read(self, samples: int, slowest: int, seconds: float) -> None:
        """Counts the samples of an answer, of which the slowest took so long."""
        with self._lock:
            self._samples += samples
            self._renew_period()
            self._slowest = max(self._slowest, (seconds, slowest))

    def work(self) -> PythonWork:
        """Returns the work so far, with the requests at hand."""
        with self._lock:
            self._add_up()
            self._renew_period()
            slowest, sample = max(self._slowest, self._slowest_before)
            return PythonWork(self._workers, self._seconds, self._samples, sample, slowest)

    def _add_up(self) -> None:
        now = self._clock()
        self._seconds += len(self._active) * (now - self._since)
        self._since = now

    def _renew_period(self) -> None:
        if (now := self._clock()) >= self._period_began + _PERIOD_SECONDS:
            is_old = now >= self._period_began + 2 * _PERIOD_SECONDS
            self._slowest_before = (0.0, 0) if is_old else self._slowest
            self._slowest, self._period_began = (0.0, 0), now
