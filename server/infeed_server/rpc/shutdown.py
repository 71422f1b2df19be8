"""The end of a server as its open calls see it: draining first, then ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Shutdown:
    """Two flags that are set once, and the functions that are called when one of them is."""

    def __init__(self) -> None:
        self.draining = False
        """Whether clients are to make their requests elsewhere."""
        self.ended = False
        """Whether the calls that are still open are to end now."""
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @contextmanager
    def notifies(self, callback: Callable[[], None]) -> Iterator[None]:
        """Calls the function after each change, as long as the block runs; it must not block.

        The block reads both flags after it has begun, so that it misses no change.
        """
        with self._lock:
            self._callbacks.append(callback)
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)

    def drain(self) -> None:
        """Makes open streams announce the shutdown. They continue until `end`."""
        self.draining = True
        self._notify()

    def end(self) -> None:
        """Ends the calls that are left, with a status."""
        self.draining = self.ended = True
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
