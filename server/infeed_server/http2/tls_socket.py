"""Accepted sockets with TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Sequence

from infeed.http2.tls_engine import TLSEngine
from infeed_server.http2.socket import Buffer, HandshakeError, ServerSocket

_HANDSHAKE_TIMEOUT_SECONDS = 10.0
_HANDSHAKE_RECORD = 0x16
"""The first byte of a TLS connection."""

_PLAINTEXT_BYTES = 1 << 16
_SEND_BYTES = 1 << 19
"""Bytes that are encrypted before they are sent: a bound on memory."""

_LINGER_TIMEOUT_SECONDS = 1.0
"""Time for a refused peer to read the alert: closed with bytes unread, the connection would be
reset and the alert lost."""


class TLSServerSocket(ServerSocket):
    """A TLS connection. That of a plaintext peer stays open, with `encrypted` False."""

    def __init__(
        self, connection: socket.socket, send_timeout: float, context: ssl.SSLContext
    ) -> None:
        super().__init__(connection, send_timeout)
        self._engine = TLSEngine(_without_resumption(context), server_side=True)
        self._plaintext = memoryview(bytearray(_PLAINTEXT_BYTES))
        self._send_lock = threading.Lock()

    def handshake(self) -> None:
        deadline = time.monotonic() + _HANDSHAKE_TIMEOUT_SECONDS
        if self._peek(_HANDSHAKE_TIMEOUT_SECONDS) != _HANDSHAKE_RECORD:
            return
        try:
            while not self._engine.handshake():
                self._flush_tls_output()
                self._receive_ciphertext(deadline - time.monotonic())
        except ssl.SSLEOFError:
            raise ConnectionResetError(
                "the peer closed the connection in the TLS handshake"
            ) from None
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                self._flush_tls_output()
                self._linger(_LINGER_TIMEOUT_SECONDS)
            raise HandshakeError(_describe(error)) from error
        self._flush_tls_output()
        self.client_certificate = self._engine.peer_certificate()
        self.encrypted = True

    def receive(self, timeout: float) -> bytes:
        if not self.encrypted:
            return super().receive(timeout)
        deadline = time.monotonic() + timeout  # fixed: a record may arrive byte by byte
        while True:
            count = self._engine.read(self._plaintext)
            self._flush_tls_output()
            if count is not None:
                return bytes(self._plaintext[:count])
            if (left := deadline - time.monotonic()) < 0:
                raise TimeoutError(f"the peer sent no data for {timeout:g} s")
            self._receive_ciphertext(left)

    def send(self, buffers: Sequence[Buffer]) -> None:
        if not self.encrypted:
            super().send(buffers)
            return
        with self._send_lock:
            for buffer in buffers:
                unsent = memoryview(buffer)
                while unsent:
                    self._engine.write(unsent[:_SEND_BYTES])
                    unsent = unsent[_SEND_BYTES:]
                    if self._engine.pending >= _SEND_BYTES:
                        super().send([self._engine.take()])
            super().send([self._engine.take()])
        self._flush_tls_output()

    def _receive_ciphertext(self, timeout: float) -> None:
        self._engine.feed(memoryview(super().receive(timeout)))

    def _flush_tls_output(self) -> None:
        """Sends TLS's own records, or leaves them to the thread that is sending."""
        while self._engine.pending and self._send_lock.acquire(blocking=False):
            try:
                super().send([self._engine.take()])
            finally:
                self._send_lock.release()

    def _peek(self, timeout: float) -> int | None:
        """Returns the first byte without consuming it; None at the end of the connection."""
        self._wait_readable(timeout)
        return next(iter(self._socket.recv(1, socket.MSG_PEEK)), None)

    def _linger(self, timeout: float) -> None:
        """Ends the sending direction and discards input until the peer closes, or the timeout."""
        self._socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + timeout
        while (remaining := deadline - time.monotonic()) > 0 and super().receive(remaining):
            pass


def _without_resumption(context: ssl.SSLContext) -> ssl.SSLContext:
    """Returns a context for one connection, whose sessions end with it.

    A resumed session shows no certificate, so one that has expired since would still be accepted.
    TLS 1.3 resumes by ticket only. TLS 1.2 also resumes by session id, from a store in the context
    that Python cannot turn off, so each connection gets a store of its own.
    """
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.num_tickets = 0
    own.options = context.options
    own.verify_mode = context.verify_mode

    def use_certificate(tls: ssl.SSLObject, *_: object) -> None:
        tls.context = context

    own.sni_callback = use_certificate  # called without a server name too
    return own


def _describe(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"untrusted certificate: {error.verify_message}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return f"TLS handshake failed: {reason}"
