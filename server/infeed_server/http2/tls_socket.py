"""Accepted sockets with TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Sequence

from infeed.http2.tls_engine import EOF, TLSEngine
from infeed_server.http2.frame_budget import POOR_RECORD_RATE, Allowance
from infeed_server.http2.protocol import FloodError
from infeed_server.http2.socket import Buffer, HandshakeError, ServerSocket

_HANDSHAKE_TIMEOUT_SECONDS = 10.0
_HANDSHAKE_RECORD = 0x16
"""The first byte of a TLS connection."""

_RECORD_HEADER_BYTES = 5
_MAX_RECORD_BYTES = _RECORD_HEADER_BYTES + (1 << 14) + 256
"""The largest record of TLS 1.3; OpenSSL refuses the header of a larger one but for TLS 1.2's."""

_POOR_RECORD_BYTES = 9
"""Records with less data, a frame's header, are charged: a correct peer sends few of them."""

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
        self._ciphertext = memoryview(b"")
        """Received, and not passed to the engine yet."""
        self._poor_records = Allowance(POOR_RECORD_RATE, time.monotonic)
        self._send_lock = threading.Lock()

    def handshake(self) -> None:
        deadline = time.monotonic() + _HANDSHAKE_TIMEOUT_SECONDS
        if self._peek(_HANDSHAKE_TIMEOUT_SECONDS) != _HANDSHAKE_RECORD:
            return
        try:
            while not self._engine.handshake():
                self._flush_tls_output()
                self._feed_record(deadline)
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
        if (count := self._engine.read(self._plaintext)) is not None:
            return bytes(self._plaintext[:count])  # the end, or an error, behind earlier data
        filled = 0
        while not filled or self._record_bytes() <= len(self._ciphertext):
            self._feed_record(deadline)
            try:
                count = self._engine.read(self._plaintext[filled:])
            except ssl.SSLError:
                if filled:
                    break  # the next read raises it
                raise
            self._flush_tls_output()
            # Each by itself: records that hold no data must not be free.
            if count is None or 0 < count < _POOR_RECORD_BYTES:
                self._charge_poor_record()
            if count == EOF:
                break
            filled += count or 0
            if len(self._plaintext) - filled < _MAX_RECORD_BYTES:
                break
        return bytes(self._plaintext[:filled])

    def _charge_poor_record(self) -> None:
        if not self._poor_records.take(1):
            raise FloodError("flood: too many TLS records without data")

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

    def _feed_record(self, deadline: float) -> None:
        """Passes the next record to the engine. Raises `TimeoutError` if it is not complete."""
        while (size := self._record_bytes()) > len(self._ciphertext):
            if (left := deadline - time.monotonic()) < 0:
                raise TimeoutError("the peer sent no complete TLS record in time")
            data = super().receive(left)
            if not data:
                self._engine.feed(memoryview(b""))
                return
            self._ciphertext = memoryview(bytes(self._ciphertext) + data)
        self._engine.feed(self._ciphertext[:size])
        self._ciphertext = self._ciphertext[size:]

    def _record_bytes(self) -> int:
        """Returns the size of the next record; of an invalid one, what there is, for OpenSSL's
        error."""
        if len(self._ciphertext) < _RECORD_HEADER_BYTES:
            return _RECORD_HEADER_BYTES
        size = _RECORD_HEADER_BYTES + int.from_bytes(self._ciphertext[3:5], "big")
        return size if size <= _MAX_RECORD_BYTES else len(self._ciphertext)

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
