"""Periodic calls on a thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class PeriodicTask:
    """Calls a function at an interval, from `start` to `stop`; its exceptions are logged."""

    def __init__(self, name: str, interval_seconds: float, function: Callable[[], None]) -> None:
        self._interval_seconds = interval_seconds
        self._function = function
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"infeed-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns after the last call. May be called twice, and before `start`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_seconds):
            try:
                self._function()
            except Exception:
                log.exception("%s failed", self._thread.name)
