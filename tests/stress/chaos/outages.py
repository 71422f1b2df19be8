"""Outages: the times in which no server could answer, so that trainers had to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_POLL_INTERVAL_SECONDS = 0.05


class Outages:
    """Polls on a thread whether a server can answer. A context manager."""

    def __init__(self, can_answer: Callable[[], bool]) -> None:
        self._can_answer = can_answer
        self._outages: list[tuple[float, float]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="chaos-outages", daemon=True)

    def seconds_within(self, begin: float, end: float) -> float:
        """Returns the outage time between two times of the monotonic clock."""
        return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in self._outages)

    def __enter__(self) -> Outages:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _poll(self) -> None:
        last_poll = time.monotonic()
        while not self._stopping.wait(_POLL_INTERVAL_SECONDS):
            now = time.monotonic()
            if not self._can_answer():
                self._outages.append((last_poll, now))
            last_poll = now


__all__ = ["Outages"]
