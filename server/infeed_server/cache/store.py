"""Stores of records: the interface, and the store in memory."""

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
        """Returns whether `put` may keep a new record: False if it certainly will not."""

    @property
    @abstractmethod
    def used_bytes(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...


_MAX_REFUSED = 64
"""Records refused in a row before a store counts as full: after large ones, a small one may fit."""

_OVERHEAD_BYTES = 160
"""Bytes of an entry besides its record: an object, an integer and a table slot."""


class MemoryStore(Store):
    """Records in this process's memory, at most `budget` bytes: those that fit are kept for good.
    An epoch needs each sample once, so no other choice of the same size gives more hits than a
    fixed one."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._records: dict[int, bytes] = {}
        self._used = 0
        self._refused = 0
        """Number of records in a row that did not fit."""
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
