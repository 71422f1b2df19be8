"""A cache of parts of tables, bounded in bytes, in which each part is loaded by one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from infeed_server.sources.arrow.tables import Part


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
        self._loading: dict[int, Future[Part]] = {}

    def get(self, numbers: Sequence[int]) -> list[Part]:
        """Returns parts: kept ones, and those that this thread or another one loads. Raises the
        errors of loading, which are not kept."""
        found: dict[int, Part] = {}
        loading: dict[int, Future[Part]] = {}
        own: list[int] = []
        with self._lock:
            for number in numbers:
                if number in self._kept:
                    self._kept[number] = self._kept.pop(number)
                    found[number] = self._kept[number][0]
                    continue
                if number not in self._loading:
                    self._loading[number] = Future()
                    own.append(number)
                loading[number] = self._loading[number]
        # Its own first: another thread may wait for them, and this one for the other's.
        if own:
            self._load_own(own)
        found |= {number: future.result() for number, future in loading.items()}
        return [found[number] for number in numbers]

    def _load_own(self, numbers: Sequence[int]) -> None:
        try:
            parts = self._load(numbers)
        except BaseException as error:
            with self._lock:
                futures = [self._loading.pop(number) for number in numbers]
            for future in futures:
                future.set_exception(error)
            raise
        with self._lock:
            for number, part in zip(numbers, parts, strict=True):
                self._keep(number, part)
                self._loading.pop(number).set_result(part)

    def _keep(self, number: int, part: Part) -> None:
        size = sum(column.nbytes for column in part.values())
        if size > self._limit:
            return
        self._kept[number] = part, size
        self._bytes += size
        while self._bytes > self._limit:
            _, freed = self._kept.pop(next(iter(self._kept)))
            self._bytes -= freed
