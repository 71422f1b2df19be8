"""A wire in TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Sequence

from infeed.cipher import Cipher
from infeed_server.http2.wire import Piece, RefusedError, Wire

_HANDSHAKE_SECONDS = 10.0
_HANDSHAKE_RECORD = 0x16
"""The first byte of whoever speaks TLS."""

_CLEAR_BYTES = 1 << 16
_SEND_BYTES = 1 << 19

_LINGER_SECONDS = 1.0
"""For a peer that is refused to read why: closed with its bytes unread, the connection would be
reset, and the reason lost."""


class SecureWire(Wire):
    """A peer that speaks in the clear is let through with `secure` False, for others to tell it."""

    def __init__(
        self, connection: socket.socket, send_seconds: float, context: ssl.SSLContext
    ) -> None:
        super().__init__(connection, send_seconds)
        self._cipher = Cipher(_unresumable(context), server_side=True)
        self._clear = memoryview(bytearray(_CLEAR_BYTES))
        self._own = threading.Lock()  # one at a time sends

    def open(self) -> None:
        deadline = time.monotonic() + _HANDSHAKE_SECONDS
        if self.peek(_HANDSHAKE_SECONDS) != _HANDSHAKE_RECORD:
            return
        try:
            while not self._cipher.handshake():
                self._relieve()
                self._cipher.feed(memoryview(super().receive(deadline - time.monotonic())))
        except ssl.SSLEOFError:
            raise ConnectionResetError("the peer left in the TLS handshake") from None
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                self._relieve()
                self.linger(_LINGER_SECONDS)
            raise RefusedError(_told(error)) from error
        self._relieve()
        self.secure = True

    def receive(self, timeout: float) -> bytes:
        if not self.secure:
            return super().receive(timeout)
        while True:
            count = self._cipher.read(self._clear)
            self._relieve()
            if count is not None:
                return bytes(self._clear[:count])
            self._cipher.feed(memoryview(super().receive(timeout)))

    def send(self, pieces: Sequence[Piece]) -> None:
        if not self.secure:
            super().send(pieces)
            return
        with self._own:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    self._cipher.write(rest[:_SEND_BYTES])
                    rest = rest[_SEND_BYTES:]
                    if self._cipher.pending >= _SEND_BYTES:
                        super().send([self._cipher.take()])
            super().send([self._cipher.take()])
        self._relieve()

    def _relieve(self) -> None:
        """Sends what TLS itself has to say, unless somebody is sending, who then does so."""
        while self._cipher.pending and self._own.acquire(blocking=False):
            try:
                super().send([self._cipher.take()])
            finally:
                self._own.release()


def _unresumable(context: ssl.SSLContext) -> ssl.SSLContext:
    """Returns a context for one connection, whose sessions end with it.

    A peer that resumes a session shows no certificate, so one that has expired since would still
    be good. TLS 1.3 resumes by ticket only. TLS 1.2 also resumes by the session's id, from a
    store in the context that Python cannot turn off, so each connection has a store of its own.
    """
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.num_tickets = 0
    own.options = context.options
    own.verify_mode = context.verify_mode

    def use_certificate(tls: ssl.SSLObject, *_: object) -> None:
        tls.context = context

    own.sni_callback = use_certificate  # called without a server name too
    return own


def _told(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message}"
    return f"no TLS with it: {(error.reason or str(error)).lower().replace('_', ' ')}"
