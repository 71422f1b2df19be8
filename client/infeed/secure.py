"""A link in TLS. Imported only where TLS is used."""

from __future__ import annotations

import ssl
import threading
import time

from infeed.cipher import Cipher
from infeed.link import CONNECT_SECONDS, Link, UntrustedError
from infeed.tls import ALPN

_RECEIVE_BYTES = 1 << 20
_SEND_BYTES = 1 << 18

_TLS_RECORDS = (0x15, 0x16)
"""The first byte of whoever speaks TLS: an alert's, or the handshake's."""

_HINTS = {
    "CERTIFICATE_REQUIRED": "asks for a trainer's certificate; give TLS(cert=..., key=...)",
    "CERTIFICATE_EXPIRED": "refuses this trainer's certificate: it has expired",
    "CERTIFICATE_REVOKED": "refuses this trainer's certificate: it was revoked",
    "UNKNOWN_CA": "refuses this trainer's certificate: it does not know its authority",
    "BAD_CERTIFICATE": "refuses this trainer's certificate",
    "CERTIFICATE_UNKNOWN": "refuses this trainer's certificate",
    "UNSUPPORTED_CERTIFICATE": "refuses this trainer's certificate: it is not one for clients",
    "ACCESS_DENIED": "refuses this trainer's certificate: it has no access",
    "PROTOCOL_VERSION": "and this trainer have no version of TLS in common",
    "HANDSHAKE_FAILURE": "asks for a trainer's certificate, TLS(cert=..., key=...), or has no "
    "cipher of TLS in common with this trainer",
}
"""By the ends of OpenSSL's names for the peer's alerts."""


class SecureLink(Link):
    """Raises `UntrustedError` when one end does not trust the other."""

    def __init__(self, address: str, context: ssl.SSLContext, server_name: str) -> None:
        """`server_name` is what the server's certificate must bear."""
        super().__init__(address)
        self._server_name = server_name
        self._cipher = Cipher(context, server_name=server_name)
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        self._sending = threading.Lock()

    def open(self, timeout: float = CONNECT_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        super().open(timeout)
        try:
            self._shake_hands(deadline)
        except ssl.SSLEOFError:
            raise ConnectionResetError("the connection was cut in the TLS handshake") from None
        except ssl.SSLError as error:
            raise self._untrusted(error) from error
        if self._cipher.protocol != ALPN:
            raise UntrustedError(f"{self._address} speaks TLS, but not HTTP/2 in it")

    def receive(self, into: memoryview, timeout: float) -> int:
        deadline = time.monotonic() + timeout  # not prolonged by a record that comes byte by byte
        while True:
            try:
                count = self._cipher.read(into)
            except ssl.SSLError as error:  # in TLS 1.3 the server judges after our handshake
                raise self._untrusted(error) from error
            if self._cipher.pending:
                self._relieve()
            if count is not None:
                return count
            if (left := deadline - time.monotonic()) < 0:
                raise TimeoutError
            count = super().receive(self._received, left)
            self._cipher.feed(self._received[:count])

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        with self._sending:
            while rest:
                self._cipher.write(rest[:_SEND_BYTES])
                super().send(self._cipher.take())
                rest = rest[_SEND_BYTES:]
        self._relieve()

    def _shake_hands(self, deadline: float) -> None:
        heard = False
        while not self._cipher.handshake():
            super().send(self._cipher.take())
            count = super().receive(self._received, deadline - time.monotonic())
            # OpenSSL has other names for this in each version of its own.
            if count and not heard and self._received[0] not in _TLS_RECORDS:
                raise UntrustedError(
                    f"{self._address} does not speak TLS; leave out tls=, or give the server a "
                    "certificate"
                )
            heard = True
            self._cipher.feed(self._received[:count])
        super().send(self._cipher.take())

    def _relieve(self) -> None:
        """Sends what TLS itself has to say, unless somebody is sending, who then does so."""
        while self._cipher.pending and self._sending.acquire(blocking=False):
            try:
                super().send(self._cipher.take())
            finally:
                self._sending.release()

    def _untrusted(self, error: ssl.SSLError) -> OSError:
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message.rstrip(".")
            hint = "; name its authority with TLS(ca=...)" if "issuer" in why else ""
            return UntrustedError(
                f"the certificate of {self._address} is not to be trusted as that of "
                f"{self._server_name!r}: {why}{hint}"
            )
        for end, hint in _HINTS.items():
            if (error.reason or "").endswith(end):
                return UntrustedError(f"{self._address} {hint}")
        return ConnectionAbortedError(f"TLS failed: {error.reason or error}")


__all__ = ["SecureLink"]
