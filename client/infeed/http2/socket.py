"""TCP and Unix client sockets on which every operation has a timeout.

One thread receives, others send; any thread may abort the connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
from itertools import zip_longest

from infeed.http2.target import SocketAddress, resolve

CONNECT_TIMEOUT_SECONDS = 5.0
"""The time until a connection works: TCP, TLS, and the first frame of the peer. A process that
hangs behind an address of several (a proxy, or `infeed serve --processes`) still gets connections
from the kernel, and the next attempt may reach another one. A shorter time could give up on a
server to which hundreds of trainers connect at once."""

ATTEMPT_DELAY_SECONDS = 0.25
"""The time after which the next host of an address is tried beside one that does not answer: what
RFC 8305 recommends."""

SEND_TIMEOUT_SECONDS = 15.0
"""A peer that accepts no data for this long is considered lost; requests are small."""


class TLSVerificationError(ConnectionError):
    """One end rejected the other's certificate or protocol; a retry would fail in the same way."""


class ClientSocket:
    """Connection to an address, made by `open`. Its methods raise `OSError` when it is lost."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._attempts: list[socket.socket] = []
        """Sockets that are being connected."""
        self._aborted = False
        self._lock = threading.Lock()

    def open(self, timeout: float = CONNECT_TIMEOUT_SECONDS) -> None:
        """Connects to one of the address's hosts, the first that accepts.

        A host that does not answer delays the next one by a moment only (RFC 8305, "Happy
        Eyeballs"): attempts run at once.
        """
        deadline = time.monotonic() + timeout
        last_error: OSError = ConnectionError(f"{self._address} has no address")
        hosts = _alternate_families(resolve(self._address))
        next_at = 0.0
        try:
            while hosts or self._attempts:
                if hosts and (time.monotonic() >= next_at or not self._attempts):
                    next_at = time.monotonic() + ATTEMPT_DELAY_SECONDS
                    try:
                        self._begin_attempt(hosts.pop(0))
                    except OSError as error:
                        last_error, next_at = error, 0.0
                        continue
                end = min(deadline, next_at) if hosts else deadline
                for attempt in _wait(self._attempts, select.POLLOUT, end - time.monotonic()):
                    if not (code := attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                        self._use(attempt)
                        return
                    last_error, next_at = OSError(code, os.strerror(code)), 0.0
                    self._drop(attempt)
                if self._attempts and time.monotonic() >= deadline:
                    raise TimeoutError
            raise last_error
        finally:
            for attempt in list(self._attempts):
                self._drop(attempt)

    def receive(self, into: memoryview, timeout: float) -> int:
        """Receives what has arrived, and returns its size; 0 when the peer has closed.

        Raises `TimeoutError`.
        """
        connection = self._connected_socket()
        while True:
            try:
                return connection.recv_into(into)
            except BlockingIOError:
                if not _wait([connection], select.POLLIN, timeout):
                    raise TimeoutError from None

    def send(self, data: bytes) -> None:
        """Sends all of the data. Raises `TimeoutError` when the peer does not accept it."""
        connection = self._connected_socket()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[connection.send(rest) :]
            except BlockingIOError:
                if not _wait([connection], select.POLLOUT, SEND_TIMEOUT_SECONDS):
                    raise TimeoutError(
                        f"the peer accepted no data for {SEND_TIMEOUT_SECONDS:g} s"
                    ) from None

    def send_now(self, data: bytes) -> None:
        """Sends data without waiting, or part of it; nothing may be sent after it."""
        self._connected_socket().send(data)

    def abort(self) -> None:
        """Ends the connection at once, from any thread, and wakes the threads that wait on it."""
        with self._lock:
            self._aborted = True
            for connection in (self._socket, *self._attempts):
                if connection is not None:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket; no thread may be using it."""
        self.abort()
        if self._socket is not None:
            self._socket.close()

    def _begin_attempt(self, host: SocketAddress) -> None:
        family, address = host
        with self._lock:
            # Begun under the lock, so that `abort` finds no socket yet, or one that it can wake.
            if self._aborted:
                raise ConnectionAbortedError("the connection was closed")
            attempt = socket.socket(family, socket.SOCK_STREAM)
            attempt.setblocking(False)
            code = attempt.connect_ex(address)
            if code not in (0, errno.EINPROGRESS):
                attempt.close()
                raise OSError(code, os.strerror(code))
            self._attempts.append(attempt)

    def _use(self, attempt: socket.socket) -> None:
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("the connection was closed")
            self._attempts.remove(attempt)
            self._socket = attempt
        if attempt.family != socket.AF_UNIX:
            attempt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _drop(self, attempt: socket.socket) -> None:
        with self._lock:
            self._attempts.remove(attempt)
            attempt.close()

    def _connected_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionAbortedError("the connection was closed")
        return self._socket


def _wait(connections: list[socket.socket], event: int, timeout: float) -> list[socket.socket]:
    """Waits until a socket is readable or writable; returns those that are, none at the timeout."""
    poll = select.poll()  # select() fails beyond 1024 open files
    for connection in connections:
        poll.register(connection, event)
    ready = {descriptor for descriptor, _ in poll.poll(max(0.0, timeout) * 1000)}
    return [connection for connection in connections if connection.fileno() in ready]


def _alternate_families(hosts: list[SocketAddress]) -> list[SocketAddress]:
    """Returns the hosts in their order, but IPv6 and IPv4 in turn: often all of one are dead."""
    families = dict.fromkeys(family for family, _ in hosts)
    groups = [[host for host in hosts if host[0] == family] for family in families]
    return [host for turn in zip_longest(*groups) for host in turn if host is not None]
