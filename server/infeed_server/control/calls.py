"""Calls of the functions whose results the endpoints show: on the event loop while they are quick.

To hand a call to a thread and its result back waits several times for Python's lock, which streams
hold: under load, for far longer than most calls take. A long call must not keep probes waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

MAX_SECONDS = 0.01
"""Processor time of a call on the event loop. One that took more runs on a thread next time."""

Result = TypeVar("Result")


class Calls:
    """Calls functions on the event loop, or on a thread if that took long last time."""

    def __init__(
        self, *, blocking: bool = False, clock: Callable[[], float] = time.thread_time
    ) -> None:
        """`blocking`: the functions wait for other processes, so each call runs on a thread.
        `clock` returns the processor time of the thread that calls it.
        """
        self._blocking = blocking
        self._clock = clock
        self._slow: set[str] = set()

    async def run(self, name: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Returns the function's result. Calls of the same name should take equally long."""
        if self._blocking or name in self._slow:
            return await asyncio.to_thread(self._timed, name, function, *arguments)
        return self._timed(name, function, *arguments)

    def _timed(self, name: str, function: Callable[..., Result], *arguments: Any) -> Result:
        began_at = self._clock()
        try:
            return function(*arguments)
        finally:
            if self._clock() - began_at > MAX_SECONDS:
                self._slow.add(name)
            else:
                self._slow.discard(name)
