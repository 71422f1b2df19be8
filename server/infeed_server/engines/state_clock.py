"""State clock: how long a pipeline has been in each of its states."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

PipelineState = Literal["no_request", "no_budget", "source", "transform", "repair"]
"""What a pipeline waits for: a request; a stream that may hold another batch; the source; the
transforms, including their work; or only the examination of bad samples."""

STATES: tuple[PipelineState, ...] = get_args(PipelineState)

StateSeconds = Mapping[PipelineState, float]


class Stopwatch:
    """Adds up the time in which a condition held. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._total = 0.0
        self._since: float | None = None

    def set(self, is_so: bool) -> None:
        """Sets whether the condition holds from now on."""
        self._total = self.seconds()
        self._since = self._clock() if is_so else None

    def seconds(self) -> float:
        """Returns the time so far."""
        return self._total + (0.0 if self._since is None else self._clock() - self._since)


class StateClock:
    """Adds up the time in each state, without gaps between states. Thread-safe."""

    def __init__(
        self,
        current: Callable[[], PipelineState],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`current` returns the state of the pipeline now, quickly and without a lock."""
        self._current = current
        self._clock = clock
        self._state: PipelineState = "no_request"
        self._since = clock()
        self._seconds = dict.fromkeys(STATES, 0.0)
        self._lock = threading.Lock()

    def update(self) -> None:
        """Reads the state again; called after everything that may have changed it."""
        with self._lock:  # held while reading the state: the last reader must win
            if (state := self._current()) != self._state:
                now = self._clock()
                self._seconds[self._state] += now - self._since
                self._state, self._since = state, now

    def seconds(self) -> StateSeconds:
        """Returns the time in each state so far, including the current one."""
        with self._lock:
            current = self._clock() - self._since
            return {**self._seconds, self._state: self._seconds[self._state] + current}


def total_seconds(parts: Iterable[StateSeconds]) -> StateSeconds:
    """Returns the sums over pipelines."""
    parts = tuple(parts)
    return {state: sum(seconds[state] for seconds in parts) for state in STATES}
