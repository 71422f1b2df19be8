"""TCP and Unix client sockets with timeouts, and a buffered reader for them."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from infeed.http2.target import SocketAddress, resolve
from infeed.shared.keepalive import CLIENT_PING_INTERVAL_SECONDS, CLIENT_PING_TIMEOUT_SECONDS

CONNECT_TIMEOUT_SECONDS = 5.0
"""Seconds to establish a connection: TCP, TLS and the peer's first frame. More wait longer for a
hung process; fewer give up on a server that hundreds of trainers join at once."""

SEND_TIMEOUT_SECONDS = 15.0
"""Seconds without accepted data after which a peer is considered lost; requests are small."""

_BUFFER_BYTES = 1 << 12
"""Smaller reads are buffered, so that a frame's header needs no system call of its own."""


class TLSVerificationError(ConnectionError):
    """One end rejected the other's certificate or protocol, so a retry would fail too."""


class ConnectionLostError(Exception):
    """The connection or its stream ended early; the request can be retried on another server."""


class ClientSocket:
    """Connection to an address, made by `open`. Its methods raise `OSError` when it is lost."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._aborted = False
        self._lock = threading.Lock()

    def open(self, timeout: float = CONNECT_TIMEOUT_SECONDS) -> None:
        """Connects to the first of the address's hosts that accepts."""
        deadline = time.monotonic() + timeout
        last_error: OSError = ConnectionError(f"{self._address} has no address")
        hosts = resolve(self._address)
        for index, host in enumerate(hosts):
            left = deadline - time.monotonic()
            try:
                self._connect(host, left / (len(hosts) - index))
                return
            except OSError as error:
                last_error = error
                self._free()
        raise last_error

    def receive(self, into: memoryview, timeout: float) -> int:
        """Receives what has arrived, and returns its size; 0 when the peer has closed."""
        connection = self._connected_socket()
        while True:
            try:
                return connection.recv_into(into)
            except BlockingIOError:
                if not _wait(connection, select.POLLIN, timeout):
                    raise TimeoutError from None

    def send(self, data: bytes) -> None:
        """Sends all of the data. Raises `TimeoutError` when the peer does not accept it."""
        connection = self._connected_socket()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[connection.send(rest) :]
            except BlockingIOError:
                if not _wait(connection, select.POLLOUT, SEND_TIMEOUT_SECONDS):
                    raise TimeoutError(
                        f"the peer accepted no data for {SEND_TIMEOUT_SECONDS:g} s"
                    ) from None

    def abort(self) -> None:
        """Ends the connection at once, from any thread, and wakes the threads that wait on it."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket; no thread may be using it."""
        self.abort()
        self._free()

    def _connect(self, host: SocketAddress, timeout: float) -> None:
        family, address = host
        with self._lock:
            # Begun under the lock, so that `abort` finds no socket yet, or one that it can wake.
            if self._aborted:
                raise ConnectionAbortedError("the connection was closed")
            self._socket = connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            code = connection.connect_ex(address)
        if code == errno.EINPROGRESS:
            if not _wait(connection, select.POLLOUT, timeout):
                raise TimeoutError
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self._aborted:
            raise ConnectionAbortedError("the connection was closed")
        if code:
            raise OSError(code, os.strerror(code))
        if family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _free(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _connected_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionAbortedError("the connection was closed")
        return self._socket


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
            left = self.deadline - time.monotonic()
            if left <= 0:  # data may keep coming in frames that complete nothing
                raise TimeoutError
            count = self._socket.receive(into, left)
        if not count:
            raise ConnectionLostError("the connection was closed")
        return count

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


def _wait(connection: socket.socket, event: int, timeout: float) -> bool:
    """Waits until a socket is readable or writable; returns whether it is."""
    poll = select.poll()  # select() fails beyond 1024 open files
    poll.register(connection, event)
    return bool(poll.poll(max(0.0, timeout) * 1000))
