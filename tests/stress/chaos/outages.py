"""When there was no server at all: what trainers then wait is nobody's fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LOOK_SECONDS = 0.05


class Outages:
    """Looks whether a server can answer, all the time. A context manager."""

    def __init__(self, can_answer: Callable[[], bool]) -> None:
        self._can_answer = can_answer
        self._found: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="chaos-outages", daemon=True)

    def seconds_within(self, begin: float, end: float) -> float:
        """Of that time (monotonic seconds), what passed without a server."""
        return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in self._found)

    def __enter__(self) -> Outages:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        since = time.monotonic()
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if not self._can_answer():
                self._found.append((since, now))
            since = now


__all__ = ["Outages"]
