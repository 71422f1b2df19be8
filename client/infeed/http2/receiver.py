"""Buffered receive from a socket, with a deadline or keepalive pings.

Small reads share one system call; large reads go straight into the caller's memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from infeed.http2.socket import ClientSocket
from infeed.shared.keepalive import CLIENT_PING_INTERVAL_SECONDS, CLIENT_PING_TIMEOUT_SECONDS

_BUFFER_BYTES = 1 << 12
"""Smaller reads are buffered, so that a frame's header needs no system call of its own."""


class ConnectionLostError(Exception):
    """The connection or its stream ended early; the request can be retried on another server."""


class BufferedReceiver:
    """Buffered reader of a socket, for one thread."""

    def __init__(
        self, socket: ClientSocket, deadline: float | None, ping: Callable[[], None]
    ) -> None:
        """`deadline`, of `time.monotonic`, bounds every read. Without one, the keepalive does:
        `ping` is called after a silence, and the peer must answer it."""
        self._socket = socket
        self.deadline = deadline
        self._ping = ping
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._begin = self._end = 0

    def read_exactly(self, count: int) -> bytes:
        """Reads `count` bytes."""
        data = bytearray(count)
        view = memoryview(data)
        while view:
            view = view[self.read_some(view) :]
        return bytes(data)

    def read_some(self, into: memoryview) -> int:
        """Reads what has arrived, at least one byte, and returns the number of bytes."""
        if self._begin == self._end:
            if len(into) >= len(self._buffer):
                return self._receive(into)
            self._begin, self._end = 0, self._receive(self._buffer)
        count = min(len(into), self._end - self._begin)
        into[:count] = self._buffer[self._begin : self._begin + count]
        self._begin += count
        return count

    def _receive(self, into: memoryview) -> int:
        if self.deadline is None:
            count = self._receive_or_ping(into)
        else:
            count = self._receive_until(self.deadline, into)
        if not count:
            raise ConnectionLostError("the connection was closed")
        return count

    def _receive_until(self, deadline: float, into: memoryview) -> int:
        left = deadline - time.monotonic()
        if left <= 0:  # data may be there all the time: frames that complete nothing
            raise TimeoutError
        return self._socket.receive(into, left)

    def _receive_or_ping(self, into: memoryview) -> int:
        try:
            return self._socket.receive(into, CLIENT_PING_INTERVAL_SECONDS)
        except TimeoutError:
            self._ping()
        try:
            return self._socket.receive(into, CLIENT_PING_TIMEOUT_SECONDS)
        except TimeoutError:
            silence = CLIENT_PING_INTERVAL_SECONDS + CLIENT_PING_TIMEOUT_SECONDS
            raise ConnectionLostError(
                f"nothing was received for {silence:g} s, not even the answer to a ping"
            ) from None
