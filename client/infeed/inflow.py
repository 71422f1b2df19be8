"""What comes in on a link: exact pieces of it, awaited for as long as the peer gives signs of life.

Small pieces are cut from what one system call brings; large ones go straight to their memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from infeed.keepalive import CLIENT_PATIENCE_SECONDS, CLIENT_PING_SECONDS
from infeed.link import Link

_SCRATCH_BYTES = 1 << 12
"""Pieces that are smaller come from here, so that a frame's head costs no system call."""


class LostError(Exception):
    """The connection, or the stream on it, is gone; what was asked may be asked elsewhere."""


class Inflow:
    """Read by one thread. Raises `LostError`, `OSError`, and `TimeoutError` at the deadline."""

    def __init__(self, link: Link, deadline: float | None, ping: Callable[[], None]) -> None:
        """`deadline`, of `time.monotonic`, bounds every wait; without one, what `ping` asks of the
        peer after a silence does."""
        self._link = link
        self._deadline = deadline
        self._ping = ping
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._begin = self._end = 0

    def exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            view = view[self.some(view) :]
        return bytes(data)

    def some(self, into: memoryview) -> int:
        """At least one byte, and no more than there are."""
        if self._begin == self._end:
            if len(into) >= len(self._scratch):
                return self._receive(into)
            self._begin, self._end = 0, self._receive(self._scratch)
        count = min(len(into), self._end - self._begin)
        into[:count] = self._scratch[self._begin : self._begin + count]
        self._begin += count
        return count

    def _receive(self, into: memoryview) -> int:
        if self._deadline is None:
            count = self._receive_or_ping(into)
        else:
            count = self._link.receive(into, self._deadline - time.monotonic())
        if not count:
            raise LostError("the connection was cut")
        return count

    def _receive_or_ping(self, into: memoryview) -> int:
        try:
            return self._link.receive(into, CLIENT_PING_SECONDS)
        except TimeoutError:
            self._ping()
        try:
            return self._link.receive(into, CLIENT_PATIENCE_SECONDS)
        except TimeoutError:
            silence = CLIENT_PING_SECONDS + CLIENT_PATIENCE_SECONDS
            raise LostError(f"nothing was heard for {silence:g} s, not even to a ping") from None


__all__ = ["Inflow", "LostError"]
