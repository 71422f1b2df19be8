"""Samples in memory: those that fit are kept, and which ones is decided once.

An epoch of one job needs each sample once, so no choice of the samples to keep gives more hits than
a fixed one of the same size. Replacing the least recently used one gives far fewer. For jobs with
other seeds, it pays to know which of them needs a sample next.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from infeed_server.cache.store import Store


class MemoryStore(Store):
    """Records in this process's memory, of at most `budget` bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._records: dict[int, bytes] = {}
        self._used = 0
        self._refused = 0
        """Records in a row that did not fit."""
        self._lock = threading.RLock()

    def get(self, index: int) -> bytes | None:
        return self._records.get(index)

    def put(self, index: int, record: bytes) -> None:
        size = len(record) + _OVERHEAD_BYTES
        with self._lock:
            if index in self._records:
                return
            fits = self._used + size <= self._budget
            self._refused = 0 if fits else self._refused + 1
            if fits:
                self._records[index] = record
                self._used += size

    def takes(self, index: int) -> bool:  # noqa: ARG002
        return self._refused < _MAX_REFUSED

    @property
    def used_bytes(self) -> int:
        return self._used

    def close(self) -> None:
        self._records.clear()


class NextUseStore(MemoryStore):
    """A store in which a record makes room for one that is needed earlier."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._uses: dict[int, float] = {}
        """The time of the next use of each record that is kept or about to be put."""
        self._last: list[tuple[float, int]] = []
        """A heap of negated times and their records; those that do not match `_uses` are old."""

    def plan(self, uses: Mapping[int, float]) -> None:
        """Sets when records that are read now are needed next."""
        with self._lock:
            self._uses |= uses
            for index, use in uses.items():
                if index in self._records:
                    heappush(self._last, (-use, index))
            if len(self._last) > 4 * len(self._records) + 1024:
                self._last = [(-self._uses[index], index) for index in self._records]
                heapify(self._last)

    def put(self, index: int, record: bytes) -> None:
        size = len(record) + _OVERHEAD_BYTES
        with self._lock:
            if index in self._records:
                return
            use, refused = self._uses.setdefault(index, float("inf")), 0
            while size <= self._budget < self._used + size:
                last = self._last_needed()
                if last is None or self._uses[last] <= use:
                    break
                self._used -= len(self._records.pop(last)) + _OVERHEAD_BYTES
                del self._uses[last]
                refused = self._refused  # others still do not fit
            super().put(index, record)
            if index in self._records:
                self._refused = refused
                heappush(self._last, (-use, index))
            else:
                self._uses.pop(index, None)

    def takes(self, index: int) -> bool:
        with self._lock:
            last = self._last_needed()
            use = self._uses.get(index, float("inf"))
            if super().takes(index) or last is None or use < self._uses[last]:
                return True
            if index not in self._records:
                self._uses.pop(index, None)
            return False

    def _last_needed(self) -> int | None:
        while self._last:
            use, index = self._last[0]
            if index in self._records and self._uses[index] == -use:
                return index
            heappop(self._last)
        return None


_MAX_REFUSED = 64
"""Records refused in a row before a store is full: a small one may fit behind large ones."""

_OVERHEAD_BYTES = 160
"""Of an entry besides its record: an object, an integer and its place in the table."""
