"""The memory budget for unsent batches: one limit in bytes for all streams of a server.

A stream may always hold two batches of any size, so each makes progress even with no free bytes,
and none ever waits for another. Beyond that, its batches including the next must not exceed an
eighth of the free bytes. So all streams together hold at most the budget, plus two batches each,
and stalled streams never use up the free bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from infeed_server.engines.state_clock import Stopwatch
from infeed_server.processes import cgroup

MIN_BATCHES = 2
"""Batches that a stream may always hold, of any size: one is made while the other is sent."""

MAX_BATCHES = 16
"""Maximum batches that a stream may hold, even small ones: more would not make it faster."""

MAX_STREAM_BYTES = 256 << 20
"""Maximum bytes that one stream may hold, even if more are free."""

_FREE_DIVISOR = 8
"""A stream may hold the free bytes divided by this."""


def default_limit() -> int:
    """Returns a quarter of the memory available to this process, in bytes."""
    return cgroup.memory_bytes() // 4


class MemoryBudget:
    """Bytes of all streams' batches in progress or not yet sent. Thread-safe."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.kept_limit = limit // 2
        """Bytes of batches kept for other streams; they count as used, too."""
        self.clock = clock
        self.used = self._kept = self.reserved = 0
        self.quotas: set[StreamQuota] = set()
        self.lock = threading.Lock()

    def open_quota(self, pipeline: str) -> StreamQuota:
        """Opens the quota of a stream of the pipeline; it must be closed."""
        quota = StreamQuota(self, pipeline)
        with self.lock:
            self.quotas.add(quota)
        return quota

    def keep(self, size: int) -> bool:
        """Takes memory for a batch to keep. Returns False if there is none now."""
        with self.lock:
            fits = self._kept + size <= self.kept_limit and self.used + size <= self.limit
            if fits:
                self._kept += size
                self.used += size
            return fits

    def reserve(self, size: int, held: int) -> bool:
        """Takes memory for a holder of `held` bytes, with a stream's limit on its share of the free
        bytes. Returns False if there is none now."""
        with self.lock:
            fits = held + size <= (self.limit - self.used) // _FREE_DIVISOR
            self.used += size * fits
            self.reserved += size * fits
            return fits

    def release(self, size: int) -> None:
        """Releases memory that `reserve` took."""
        with self.lock:
            self.used -= size
            self.reserved -= size

    def drop(self, size: int) -> None:
        """Releases the memory of a batch that was kept."""
        with self.lock:
            self._kept -= size
            self.used -= size

    def held_batches(self, pipeline: str) -> int:
        """Counts the batches that the pipeline's streams hold."""
        with self.lock:
            return sum(quota.batches for quota in self.quotas if quota.pipeline == pipeline)

    def held_bytes(self, pipeline: str) -> int:
        """Counts the bytes that the pipeline's streams hold."""
        with self.lock:
            return sum(quota.bytes for quota in self.quotas if quota.pipeline == pipeline)


class StreamQuota:
    """The batches that one stream holds. Thread-safe. Each batch counts as much as the stream's
    largest so far: the size of a batch of byte strings is unknown before it is made."""

    def __init__(self, budget: MemoryBudget, pipeline: str) -> None:
        self.pipeline = pipeline
        self.batches = 0
        self._budget = budget
        self._batch_bytes = 0
        self._full = Stopwatch(budget.clock)
        self._shortage = Stopwatch(budget.clock)

    @property
    def bytes(self) -> int:
        return self.batches * self._batch_bytes

    def set_batch_bytes(self, size: int) -> None:
        """Sets the bytes that each batch counts as; a smaller size is ignored."""
        with self._budget.lock:
            if size > self._batch_bytes:
                self._budget.used += self.batches * (size - self._batch_bytes)
                self._batch_bytes = size

    def try_acquire(self) -> bool:
        """Acquires one more batch. Returns False if the stream may not hold more now."""
        with self._budget.lock:
            if self not in self._budget.quotas:
                return False
            held = self.bytes + self._batch_bytes
            fits = bool(self._batch_bytes) and self.batches < MAX_BATCHES
            fits = self.batches < MIN_BATCHES or (fits and held <= MAX_STREAM_BYTES)
            share = (self._budget.limit - self._budget.used) // _FREE_DIVISOR
            has_room = fits and (self.batches < MIN_BATCHES or held <= share)
            self._full.set(not has_room)
            self._shortage.set(fits and not has_room)
            if has_room:
                self.batches += 1
                self._budget.used += self._batch_bytes
            return has_room

    def release(self) -> None:
        """Releases one batch. Has no effect after `close`."""
        with self._budget.lock:
            if self.batches:
                self.batches -= 1
                self._budget.used -= self._batch_bytes

    def held_seconds(self) -> dict[str, float]:
        """Returns the time in which the stream had a request but held its maximum of batches, and
        the part of it due only to the server's limit; by the names in a report."""
        with self._budget.lock:
            full, shortage = self._full.seconds(), self._shortage.seconds()
            return {"unsent_seconds": full, "shortage_seconds": shortage}

    def close(self) -> None:
        """Releases all batches; none can be acquired afterwards."""
        with self._budget.lock:
            self._full.set(False)
            self._shortage.set(False)
            self._budget.used -= self.bytes
            self.batches = 0
            self._budget.quotas.discard(self)
