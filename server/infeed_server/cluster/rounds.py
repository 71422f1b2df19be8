"""Something that is looked at again and again, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

log = logging.getLogger(__name__)


class Rounds(ABC):
    """Calls `look` every so many seconds, from `start` to `stop`. Also a context manager."""

    def __init__(self, name: str, seconds: float) -> None:
        self._seconds_between = seconds
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"infeed-{name}", daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Once."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when nobody looks any more. Stopping twice, or before the start, does no harm."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._ending.wait(self._seconds_between):
            try:
                self.look()
            except Exception:  # or nobody would ever look again
                log.exception("%s failed", self._thread.name)
