"""Work meter: the time that workers of a user's Python code have worked; their slowest sample."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

from infeed_server.sources.work import PythonWork

_RECENT_SECONDS = 20.0
"""Seconds for which a slow sample is remembered: more show it longer after it was read."""


class WorkMeter:
    """Adds up the time of the requests that workers have begun. Thread-safe."""

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._clock = clock
        self._begun: dict[Hashable, float] = {}
        self._seconds = 0.0
        self._samples = 0
        self._slowest = (0.0, 0)
        self._slowest_at = 0.0
        self._lock = threading.Lock()

    def begin(self, request: Hashable) -> None:
        """Starts timing a request. Idempotent, because a request can be repeated."""
        with self._lock:
            self._begun.setdefault(request, self._clock())

    def end(self, request: Hashable) -> None:
        """Stops timing a request, if it has begun."""
        with self._lock:
            now = self._clock()
            self._seconds += now - self._begun.pop(request, now)

    def on_read(self, samples: int, seconds: float, slowest: int) -> None:
        """Counts the samples of an answer; `seconds` is the time of the slowest one."""
        with self._lock:
            self._samples += samples
            now = self._clock()
            if seconds >= self._slowest[0] or now - self._slowest_at > _RECENT_SECONDS:
                self._slowest, self._slowest_at = (seconds, slowest), now

    def work(self) -> PythonWork:
        """Returns the work so far, including requests in progress."""
        with self._lock:
            now = self._clock()
            seconds = self._seconds + sum(now - since for since in self._begun.values())
            is_recent = now - self._slowest_at <= _RECENT_SECONDS
            slowest, sample = self._slowest if is_recent else (0.0, 0)
            return PythonWork(self._workers, seconds, self._samples, sample, slowest)
