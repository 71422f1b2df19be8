"""A cache of parts of tables, bounded in bytes, in which each part is loaded by one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from infeed_server.sources.arrow.tables import Part
from infeed_server.storage.flights import Flights


class PartCache:
    """Keeps the parts that were used last. Thread-safe."""

    def __init__(self, limit: int, load: Callable[[Sequence[int]], Sequence[Part]]) -> None:
        """Keeps `limit` bytes of the parts that `load` returns."""
        self._limit = limit
        self._load = load
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[Part, int]] = {}
        """Part and its bytes; the one used last is the last."""
        self._bytes = 0
        self._flights = Flights(self._find, self._load_parts)
        self.get = self._flights.get
        """Returns parts by number. Raises the errors of loading, which are not kept."""

    def _find(self, number: int) -> Part | None:
        with self._lock:
            if number not in self._kept:
                return None
            self._kept[number] = self._kept.pop(number)
            return self._kept[number][0]

    def _load_parts(self, numbers: Sequence[int]) -> Sequence[Part]:
        parts = self._load(numbers)
        with self._lock:
            for number, part in zip(numbers, parts, strict=True):
                self._keep(number, part)
        return parts

    def _keep(self, number: int, part: Part) -> None:
        size = sum(column.nbytes for column in part.values())
        if size > self._limit:
            return
        self._kept[number] = part, size
        self._bytes += size
        while self._bytes > self._limit:
            _, freed = self._kept.pop(next(iter(self._kept)))
            self._bytes -= freed
