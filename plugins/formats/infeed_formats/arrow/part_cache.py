"""A cache of parts of tables, bounded in bytes, in which each part is loaded by one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from infeed_formats.arrow.tables import Part
from infeed_server.sources.base import READ_THREADS
from infeed_server.storage.flights import Flights


class PartCache:
    """Keeps the parts that were used last. Thread-safe."""

    def __init__(
        self, limit: int, sizes: Sequence[int], load: Callable[[Sequence[int]], Sequence[Part]]
    ) -> None:
        """Keeps `limit` bytes of the parts that `load` returns; `sizes` has the bytes of each."""
        self._limit = limit
        self._at_once = max(limit // READ_THREADS, 1)
        self._sizes = sizes
        self._load = load
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[Part, int]] = {}
        """Part and its bytes; the one used last is the last."""
        self._bytes = 0
        self._flights = Flights(self._find, self._load_parts)

    def get(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        """Yields parts with their numbers: those that together need little memory are loaded at the
        same time. Raises the errors of loading, which are not kept."""
        some: list[int] = []
        for part in parts:
            some.append(part)
            if part == parts[-1] or sum(self._sizes[one] for one in some) >= self._at_once:
                yield from zip(some, self._flights.get(some), strict=True)
                some = []

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
