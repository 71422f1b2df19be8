"""The bytes to and from one server: a socket on which no wait is without end.

One thread receives, others send; any thread may cut it off.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time

from infeed.target import SocketAddress, resolve

CONNECT_SECONDS = 20.0
SEND_SECONDS = 15.0
"""A peer that takes none of our few bytes for so long is taken for gone."""


class UntrustedError(ConnectionError):
    """One end does not trust the other: another attempt would end in the same way."""


class Link:
    """A connection to an address, made by `open`. Every method raises `OSError` when it is lost."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._cut = False
        self._lock = threading.Lock()

    def open(self, timeout: float = CONNECT_SECONDS) -> None:
        """Connects to the first of the address's hosts that answers."""
        deadline = time.monotonic() + timeout
        last: OSError = ConnectionError(f"{self._address} has no address")
        hosts = resolve(self._address)
        for index, host in enumerate(hosts):
            try:
                # A host that swallows everything leaves the others their share of the time.
                self._connect(host, (deadline - time.monotonic()) / (len(hosts) - index))
            except OSError as error:
                last = error
                self._free()
            else:
                return
        raise last

    def receive(self, into: memoryview, timeout: float) -> int:
        """Some bytes, as many as there are; 0 when the peer has ended. Raises `TimeoutError`."""
        connection = self._open_socket()
        while True:
            try:
                return connection.recv_into(into)
            except BlockingIOError:
                if not _wait(connection, select.POLLIN, timeout):
                    raise TimeoutError from None

    def send(self, data: bytes) -> None:
        """All of the data. Raises `TimeoutError` when the peer does not take it."""
        connection = self._open_socket()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[connection.send(rest) :]
            except BlockingIOError:
                if not _wait(connection, select.POLLOUT, SEND_SECONDS):
                    raise TimeoutError(f"the peer takes nothing for {SEND_SECONDS:g} s") from None

    def cut(self) -> None:
        """Ends the connection at once, from any thread; who waits on it wakes up."""
        with self._lock:
            self._cut = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket; nobody may be using it any more."""
        self.cut()
        self._free()

    def _connect(self, host: SocketAddress, timeout: float) -> None:
        family, where = host
        with self._lock:
            # Begun under the lock, so that a cut meets no socket, or one that it can wake.
            if self._cut:
                raise ConnectionAbortedError("the connection was closed")
            self._socket = connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            code = connection.connect_ex(where)
        if code == errno.EINPROGRESS:
            if not _wait(connection, select.POLLOUT, timeout):
                raise TimeoutError
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _free(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionAbortedError("the connection was closed")
        return self._socket


def _wait(connection: socket.socket, event: int, timeout: float) -> bool:
    poll = select.poll()  # select() would fail beyond 1024 open files
    poll.register(connection, event)
    return bool(poll.poll(max(0.0, timeout) * 1000))


__all__ = ["CONNECT_SECONDS", "Link", "UntrustedError"]
