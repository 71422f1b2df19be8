"""Control of a simulated trainer: the orders that the load test sends to it."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

from infeed.feed import Feed


class Control:
    """Orders of the load test to one trainer. Thread-safe."""

    def __init__(self) -> None:
        self.is_killed = False
        """Whether the trainer sends no last point."""
        self._stopping = threading.Event()
        self._feed: Feed | None = None
        self._stall_seconds = 0.0

    @property
    def is_stopping(self) -> bool:
        """Whether the trainer is to end."""
        return self._stopping.is_set()

    def use(self, feed: Feed) -> None:
        """Names the feed that a stop closes, also one that came before."""
        self._feed = feed
        if self.is_stopping:
            feed.close()

    def pause(self) -> None:
        """Waits for the length of a stall, if there is one."""
        if self._stall_seconds:
            seconds, self._stall_seconds = self._stall_seconds, 0.0
            self._stopping.wait(seconds)

    def obey(self, orders: Connection) -> None:
        """Follows orders, until the load test closes its end."""
        try:
            while True:
                name, value = orders.recv()
                if name == "stall":
                    self._stall_seconds = value
                else:
                    self._stop(kill=name == "kill")
        except (EOFError, OSError):
            self._stop(kill=True)

    def _stop(self, *, kill: bool) -> None:
        """Ends the trainer, also while it waits for a batch."""
        self.is_killed = self.is_killed or kill
        self._stopping.set()
        if self._feed is not None:
            self._feed.close()
