"""Part cache: parts of tables, with a limit in bytes; one thread loads each part."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from infeed_formats.arrow.tables import Part
from infeed_server.sources.base import READ_THREADS


class PartCache:
    """Keeps the most recently used parts. Thread-safe."""

    def __init__(
        self, limit: int, sizes: Sequence[int], load: Callable[[Sequence[int]], Sequence[Part]]
    ) -> None:
        """Keeps up to `limit` bytes of parts from `load`; `sizes` has the bytes of each part."""
        self._limit = limit
        self._at_once = max(limit // READ_THREADS, 1)
        self._sizes = sizes
        self._load = load
        self._lock = threading.Lock()
        self._parts: dict[int, Future[Part]] = {}
        """Parts kept or being loaded, the most recently used last."""
        self._kept: dict[int, int] = {}
        """The bytes of the kept parts."""

    def get(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        """Yields parts with their numbers, and loads parts together if they need little memory.
        Raises the errors of `load`, which are not kept."""
        some: list[int] = []
        for part in parts:
            some.append(part)
            if part == parts[-1] or sum(self._sizes[one] for one in some) >= self._at_once:
                yield from zip(some, self._get(some), strict=True)
                some = []

    def _get(self, numbers: Sequence[int]) -> list[Part]:
        with self._lock:
            absent = [number for number in numbers if number not in self._parts]
            wanted = {n: self._parts.pop(n) if n in self._parts else Future() for n in numbers}
            self._parts |= wanted
        # Loads first, as another thread may wait for these parts while this one waits for its.
        if absent:
            self._fill(absent)
        return [future.result() for future in wanted.values()]

    def _fill(self, numbers: Sequence[int]) -> None:
        """Loads parts and keeps them."""
        try:
            parts = self._load(numbers)
        except BaseException as error:
            with self._lock:
                futures = [self._parts.pop(number) for number in numbers]
            for future in futures:
                future.set_exception(error)
            raise
        with self._lock:
            for number, part in zip(numbers, parts, strict=True):
                self._parts[number].set_result(part)
                self._kept[number] = sum(column.nbytes for column in part.values())
                if self._kept[number] > self._limit:
                    self._drop(number)
            while sum(self._kept.values()) > self._limit:
                self._drop(next(number for number in self._parts if number in self._kept))

    def _drop(self, number: int) -> None:
        del self._parts[number], self._kept[number]
