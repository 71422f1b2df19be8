"""Simulated time: events in order, on one thread."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

THREAD_DELAY_SECONDS = 0.002
"""Bound on the time after which a woken thread runs."""


class World:
    """A clock, and what happens at which time. The same seed gives the same events."""

    def __init__(self, seed: int) -> None:
        self.now = 1000.0
        self.random = Random(seed)
        self.after_each: Callable[[], None] = lambda: None
        """Called after each event."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def monotonic(self) -> float:
        """The clock of the simulated feed: stands in for `time.monotonic`."""
        return self.now

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Lets an event happen."""
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, event))

    def wake(self, thread: Callable[[], None]) -> None:
        """Lets a thread look for work. Woken threads run in any order."""
        self.after(self.random.random() * THREAD_DELAY_SECONDS, thread)

    def run_until(self, deadline: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Passes time until `done` or the deadline; returns whether it is done."""
        while not done():
            if not self._events or self._events[0][0] > deadline:
                self.now = max(self.now, deadline)
                return False
            self.now, _, event = heapq.heappop(self._events)
            event()
            self.after_each()
        return True


class SimulatedWakeup:
    """A `Wakeup` of the trainer: it passes simulated time while the trainer waits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False
        self.interrupt: BaseException | None = None
        """Raised by the next wait, as by a signal handler."""

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float) -> bool:
        until = self._world.now + timeout
        if self.interrupt is not None:
            until = self._world.now + timeout * self._world.random.random()
        done = self._world.run_until(until, lambda: self._is_set)
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            raise interrupt
        self._is_set = False
        return done
