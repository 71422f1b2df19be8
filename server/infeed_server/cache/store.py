"""Stores of records: their interface, and the one in memory."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Store(ABC):
    """Records by index. Thread-safe."""

    @abstractmethod
    def get(self, index: int) -> bytes | None:
        """Returns a record that is kept, as it was put."""

    @abstractmethod
    def put(self, index: int, record: bytes) -> None:
        """Keeps a record, if it fits into the budget."""

    @abstractmethod
    def takes(self, index: int) -> bool:
        """Returns whether `put` may keep a record that is not kept: False where it is known."""

    @property
    @abstractmethod
    def used_bytes(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...


_MAX_REFUSED = 64
"""Records refused in a row before a store is full: a small one may fit behind large ones."""

_OVERHEAD_BYTES = 160
"""Of an entry besides its record: an object, an integer and its place in the table."""


class MemoryStore(Store):
    """Records in this process's memory, of at most `budget` bytes: those that fit are kept, and
    which ones is decided once. An epoch of one job needs each sample once, so no choice of the
    samples to keep gives more hits than a fixed one of the same size."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._records: dict[int, bytes] = {}
        self._used = 0
        self._refused = 0
        """Records in a row that did not fit."""
        self._lock = threading.Lock()

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
