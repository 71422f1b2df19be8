"""The bytes to and from one peer: a socket on which no wait is without end."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import TypeAlias

Piece: TypeAlias = "bytes | bytearray | memoryview"

_MOST_PIECES = 512
"""For one system call; Linux takes 1024."""

_RECEIVE_BYTES = 1 << 16

_LOOKS = 4
"""A send of which the peer takes a part ends with that part, and only when its time is over. So
the time is cut in four: a peer that then takes nothing more has a quarter beyond it, not all of it.
"""


class RefusedError(ConnectionAbortedError):
    """The peer is not let in; the text is for the log."""


class Wire:
    """A connection that was accepted. Every method but `cut` raises `OSError` when it is lost."""

    def __init__(self, connection: socket.socket, send_seconds: float) -> None:
        """`send_seconds`: for how long a peer may take nothing of what it is sent."""
        self.secure = False
        """Whether nobody on the way can read it."""
        connection.settimeout(None)
        # The kernel's own limit rather than Python's: a large send is one system call then, and the
        # interpreter's lock is given up and awaited once.
        look = round(send_seconds / _LOOKS * 1_000_000)
        limit = struct.pack("@ll", *divmod(look, 1_000_000))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._send_seconds = send_seconds
        self._lock = threading.Lock()

    def open(self) -> None:
        """What comes before the first byte that counts; called once, by the thread that reads."""

    def receive(self, timeout: float) -> bytes:
        """Some bytes; none when the peer has ended. Raises `TimeoutError`."""
        self._await(timeout)
        return self._socket.recv(_RECEIVE_BYTES)

    def peek(self, timeout: float) -> int | None:
        """The first byte that `receive` will give; None when the peer has ended."""
        self._await(timeout)
        return next(iter(self._socket.recv(1, socket.MSG_PEEK)), None)

    def send(self, pieces: Sequence[Piece]) -> None:
        """All the pieces, end to end. Raises `TimeoutError` when the peer takes none of them."""
        rest = [memoryview(piece) for piece in pieces if piece]
        begin = looks = 0
        while begin < len(rest):
            try:
                sent = self._socket.sendmsg(rest[begin : begin + _MOST_PIECES])
            except BlockingIOError:
                looks += 1
                if looks < _LOOKS:
                    continue
                raise TimeoutError(f"the peer took nothing for {self._send_seconds:g} s") from None
            looks = 0
            while begin < len(rest) and sent >= len(rest[begin]):
                sent -= len(rest[begin])
                begin += 1
            if sent:
                rest[begin] = rest[begin][sent:]

    def is_writable(self) -> bool:
        """Whether a few bytes can be sent without a wait."""
        with self._lock:
            if self._socket.fileno() < 0:
                return False
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT)
            return bool(poll.poll(0))

    def linger(self, seconds: float) -> None:
        """Ends what is sent, and swallows what comes until the peer ends too, or for so long."""
        self._socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and Wire.receive(self, left):
            pass

    def cut(self) -> None:
        """Ends the connection at once, from any thread; who waits on it wakes up."""
        with self._lock, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket; nobody may be using it any more."""
        with self._lock:
            self._socket.close()

    def _await(self, timeout: float) -> None:
        poll = select.poll()  # select() would fail beyond 1024 open files
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(max(0.0, timeout) * 1000):
            raise TimeoutError(f"the peer said nothing for {timeout:g} s")
