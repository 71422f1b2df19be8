"""Timers of a connection, which its reading thread runs between two waits for data."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

_MIN_PURGE_SIZE = 64


class Timer:
    """A call at a later time. `cancel` may be called from any thread, and again."""

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self._callback: Callable[[], None] | None = callback

    @property
    def cancelled(self) -> bool:
        return self._callback is None

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        if callback := self._callback:
            self._callback = None
            callback()


class Timers:
    """The timers of one connection. Only the reading thread adds and runs them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._purge_size = _MIN_PURGE_SIZE

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls the function after so many seconds, unless the timer is cancelled."""
        timer = Timer(self._clock() + seconds, callback)
        heapq.heappush(self._heap, (timer.due, next(self._numbers), timer))
        if len(self._heap) > self._purge_size:  # calls end long before their deadlines
            self._heap = [entry for entry in self._heap if not entry[2].cancelled]
            heapq.heapify(self._heap)
            self._purge_size = max(_MIN_PURGE_SIZE, 2 * len(self._heap))
        return timer

    def run_due(self) -> float | None:
        """Runs the timers that are due; returns the seconds until the next, None without one."""
        while self._heap:
            due, _, timer = self._heap[0]
            if not timer.cancelled and (left := due - self._clock()) > 0:
                return left
            heapq.heappop(self._heap)
            timer.run()
        return None
