"""Parts that several threads need: one thread loads each, and the others wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Part = TypeVar("Part")


class Flights(Generic[Part]):
    """Returns parts by number, kept or loaded. Thread-safe."""

    def __init__(
        self,
        find: Callable[[int], Part | None],
        load: Callable[[Sequence[int]], Sequence[Part]],
    ) -> None:
        """`find` returns a part that is kept; `load` loads parts, and keeps them."""
        self._find, self._load = find, load
        self._lock = threading.Lock()
        self._flights: dict[int, Future[Part]] = {}

    def get(self, numbers: Sequence[int]) -> list[Part]:
        """Raises the errors of loading, in all threads that wait for it."""
        with self._lock:
            own = [number for number in dict.fromkeys(numbers) if number not in self._flights]
            self._flights.update((number, Future()) for number in own)
            flights = {number: self._flights[number] for number in numbers}
        # Its own first: another thread may wait for them, and this one for the other's.
        try:
            kept = {number: self._find(number) for number in own}
            absent = [number for number in own if kept[number] is None]
            kept |= dict(zip(absent, self._load(absent) if absent else (), strict=True))
            for number, part in kept.items():
                flights[number].set_result(part)  # type: ignore[arg-type]
        except BaseException as error:
            for number in own:
                flights[number].set_exception(error)
            raise
        finally:
            with self._lock:
                for number in own:
                    del self._flights[number]
        return [flights[number].result() for number in numbers]
