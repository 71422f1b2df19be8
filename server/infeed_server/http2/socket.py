"""Accepted sockets on which every wait has a timeout."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from infeed_server.http2.refusals import Refusal, RefusedPeerError

Buffer: TypeAlias = "bytes | bytearray | memoryview"

_MAX_BUFFERS = 512
"""Buffers of one `sendmsg` call; Linux takes 1024."""

_RECEIVE_BYTES = 1 << 16

_SEND_ATTEMPTS = 4
"""Kernel timeouts in one send timeout. A send that is partly accepted returns only at the kernel's
timeout, so a peer that then stalls is detected after 1.25 send timeouts, not after two."""


class HandshakeError(RefusedPeerError):
    """The TLS handshake failed; the message is for the log."""

    reason: ClassVar[Refusal] = "handshake"


class ServerSocket:
    """An unencrypted connection. Every method but `abort` raises `OSError` when it is lost."""

    client_certificate: bytes | None = None
    """The certificate that the peer has proved to own, in DER."""

    def __init__(self, connection: socket.socket, send_timeout: float) -> None:
        """`send_timeout`: seconds after which a peer that accepts no data is lost."""
        self.encrypted = False
        connection.settimeout(None)
        # The kernel's timeout rather than Python's: a large send is then one system call, which
        # releases and awaits the interpreter lock once.
        microseconds = round(send_timeout / _SEND_ATTEMPTS * 1_000_000)
        kernel_timeout = struct.pack("@ll", *divmod(microseconds, 1_000_000))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, kernel_timeout)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._send_timeout = send_timeout
        self._close_lock = threading.Lock()

    def handshake(self) -> None:
        """Prepares the connection; called once, by the thread that receives."""

    def receive(self, timeout: float) -> bytes:
        """Returns some bytes, none at the end of the connection. Raises `TimeoutError`."""
        self._wait_readable(timeout)
        return self._socket.recv(_RECEIVE_BYTES)

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Sends all buffers in order. Raises `TimeoutError` when the peer accepts no data."""
        unsent = [memoryview(buffer) for buffer in buffers if buffer]
        index = failed_attempts = 0
        while index < len(unsent):
            try:
                sent = self._socket.sendmsg(unsent[index : index + _MAX_BUFFERS])
            except BlockingIOError:
                failed_attempts += 1
                if failed_attempts < _SEND_ATTEMPTS:
                    continue
                raise TimeoutError(
                    f"the peer accepted no data for {self._send_timeout:g} s"
                ) from None
            failed_attempts = 0
            while index < len(unsent) and sent >= len(unsent[index]):
                sent -= len(unsent[index])
                index += 1
            if sent:
                unsent[index] = unsent[index][sent:]

    def is_writable(self) -> bool:
        """Returns whether a few bytes can be sent without blocking."""
        with self._close_lock:
            if self._socket.fileno() < 0:
                return False
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT)
            return bool(poll.poll(0))

    def abort(self) -> None:
        """Shuts the connection down, from any thread; blocked calls of other threads return."""
        with self._close_lock, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket; no other thread may be receiving or sending."""
        with self._close_lock:
            self._socket.close()

    def _wait_readable(self, timeout: float) -> None:
        poll = select.poll()  # select() fails beyond 1024 open files
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(max(0.0, timeout) * 1000):
            raise TimeoutError(f"the peer sent no data for {timeout:g} s")
