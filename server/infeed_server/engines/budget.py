"""Memory for batches that are not sent yet: one budget in bytes for all streams of a server.

A stream may always hold two batches, whatever they weigh: each goes on however little is free, and
none ever waits for another. Beyond that, what it holds with the next batch must be no more than an
eighth of what is free before it. So all together hold no more than the budget, and two batches
each; and what is free is never used up: streams that nobody reads leave something to others.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from infeed_server.engines import host

FEWEST = 2
"""Batches of a stream, whatever they weigh: one is made while the other is sent."""

MOST = 16
"""Batches of a stream, however light they are: more would not make it quicker."""

STREAM_BYTES = 256 << 20
"""What one stream may hold, however much is free."""

_PART = 8
"""A stream may hold what is free, divided by this."""


def default_limit() -> int:
    """Bytes: a quarter of what this process may use."""
    return host.memory_bytes() // 4


class Budget:
    """Bytes of all streams' batches that are in the making, or made and not sent. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._used = 0
        self._accounts: defaultdict[str, set[Account]] = defaultdict(set)
        self._lock = threading.Lock()

    def open(self, pipeline: str) -> Account:
        """An account for a stream of the pipeline; it must be closed."""
        account = Account(self, pipeline)
        with self._lock:
            self._accounts[pipeline].add(account)
        return account

    def batches(self, pipeline: str) -> int:
        """What the pipeline's streams hold."""
        with self._lock:
            return sum(account.batches for account in self._accounts[pipeline])

    def bytes(self, pipeline: str) -> int:
        """The same in bytes."""
        with self._lock:
            return sum(account.bytes for account in self._accounts[pipeline])


class Account:
    """What one stream holds. Thread-safe.

    Each of its batches counts as much as the largest so far: what a batch of byte strings will
    weigh, nobody knows before it is made.
    """

    def __init__(self, budget: Budget, pipeline: str) -> None:
        self.batches = 0
        self._budget = budget
        self._pipeline = pipeline
        self._batch_bytes = 0
        self._closed = False

    @property
    def bytes(self) -> int:
        return self.batches * self._batch_bytes

    def weigh(self, size: int) -> None:
        """A batch of the stream takes that many bytes."""
        with self._budget._lock:
            if size > self._batch_bytes:
                self._budget._used += self.batches * (size - self._batch_bytes)
                self._batch_bytes = size

    def take(self) -> bool:
        """Takes room for one more batch; False when the stream holds all that it may now."""
        with self._budget._lock:
            if self._closed or not self._may_take():
                return False
            self.batches += 1
            self._budget._used += self._batch_bytes
            return True

    def give_back(self) -> None:
        """One batch is gone. May come after the end."""
        with self._budget._lock:
            if self.batches:
                self.batches -= 1
                self._budget._used -= self._batch_bytes

    def close(self) -> None:
        """Gives everything back; nothing can be taken from now on."""
        with self._budget._lock:
            self._closed = True
            self._budget._used -= self.bytes
            self.batches = 0
            self._budget._accounts[self._pipeline].discard(self)

    def _may_take(self) -> bool:
        if self.batches < FEWEST:
            return True
        if self.batches >= MOST or not self._batch_bytes:
            return False
        free = self._budget.limit - self._budget._used
        return self.bytes + self._batch_bytes <= min(STREAM_BYTES, free // _PART)


__all__ = ["FEWEST", "MOST", "STREAM_BYTES", "Account", "Budget", "default_limit"]
