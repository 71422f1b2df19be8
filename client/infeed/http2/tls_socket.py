"""TLS client socket over in-memory records: OpenSSL's own socket makes two system calls for every
16 KiB and cannot read in one thread while another writes."""

from __future__ import annotations

import ssl
import threading
import time

from infeed.http2.socket import CONNECT_TIMEOUT_SECONDS, ClientSocket, TLSVerificationError
from infeed.http2.target import host_name
from infeed.http2.tls_config import ALPN, spelled

_RECEIVE_BYTES = 1 << 20
_SEND_BYTES = 1 << 18
"""Data is encrypted and sent in parts of this size, to bound a send's memory."""

_TLS_RECORD_TYPES = (0x15, 0x16)
"""The first byte of a TLS peer: an alert or a handshake record."""

_REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "PROTOCOL_VERSION", "HANDSHAKE_FAILURE")
"""Parts of OpenSSL's names for alerts after which a peer will refuse the next attempt too."""

_PROBE_TIMEOUT_SECONDS = 1.0
"""Seconds for a server to answer a handshake that only finds out whether it speaks TLS."""

_SET_AUTHORITY = f"set its authority with {spelled('ca')}"
_SET_NAME = f"connect to a name that it has, or give one with {spelled('server_name')}"
_REMEDIES = {
    18: _SET_AUTHORITY,
    19: _SET_AUTHORITY,
    20: _SET_AUTHORITY,
    62: _SET_NAME,
    64: _SET_NAME,
}
"""By OpenSSL's code of the failed verification, X509_V_ERR_*."""


def answers_tls(address: str) -> bool:
    """Returns whether the server at an address completes a TLS handshake, with any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is sent nothing
    context.set_alpn_protocols([ALPN])
    probe = TLSClientSocket(address, context, host_name(address))
    try:
        probe.open(_PROBE_TIMEOUT_SECONDS)
    except OSError:
        return False
    finally:
        probe.close()
    return True


class TLSClientSocket(ClientSocket):
    """Client socket over TLS, in the methods of its base class."""

    def __init__(self, address: str, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(address)
        self._server_name = server_name
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._tls_lock = threading.Lock()
        self._tls_error: ssl.SSLError | None = None
        """The error behind the data that was decrypted last."""
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        self._send_lock = threading.Lock()

    def open(self, timeout: float = CONNECT_TIMEOUT_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        super().open(timeout)
        try:
            self._handshake(deadline)
        except ssl.SSLEOFError:
            raise ConnectionResetError(
                "the connection was closed during the TLS handshake"
            ) from None
        except ssl.SSLError as error:
            raise self._map_error(error) from error
        if self._tls.selected_alpn_protocol() != ALPN:
            raise TLSVerificationError(f"{self._address} uses TLS, but not HTTP/2 over it")

    def receive(self, into: memoryview, timeout: float) -> int:
        deadline = time.monotonic() + timeout  # fixed: a record may arrive byte by byte
        while True:
            try:
                count = self._decrypt(into)
            except ssl.SSLError as error:  # in TLS 1.3 the server verifies after our handshake
                raise self._map_error(error) from error
            self._flush_output()
            if count is not None:
                return count
            if (left := deadline - time.monotonic()) < 0:
                raise TimeoutError
            self._feed(super().receive(self._received, left))

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        with self._send_lock:
            while rest:
                super().send(self._encrypt(rest[:_SEND_BYTES]))
                rest = rest[_SEND_BYTES:]
        self._flush_output()

    def _handshake(self, deadline: float) -> None:
        is_first = True
        while not self._advance_handshake():
            self._flush_output()
            count = super().receive(self._received, deadline - time.monotonic())
            # Checked here, because OpenSSL's name for this error differs between its versions.
            if count and is_first and self._received[0] not in _TLS_RECORD_TYPES:
                raise TLSVerificationError(
                    f"{self._address} does not use TLS; leave out tls= or --tls, or configure the "
                    "server with a certificate"
                )
            is_first = False
            self._feed(count)
        self._flush_output()

    def _advance_handshake(self) -> bool:
        """Returns False while the handshake needs more bytes of the peer."""
        with self._tls_lock:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            return True

    def _feed(self, count: int) -> None:
        """Feeds received bytes to OpenSSL; none means that the peer closed the connection."""
        with self._tls_lock:
            if count:
                self._incoming.write(self._received[:count])
            else:
                self._incoming.write_eof()

    def _decrypt(self, into: memoryview) -> int | None:
        """Decrypts what is available and returns its size: 0 at the end of the connection, None if
        more bytes from the peer are needed first."""
        filled = 0
        with self._tls_lock:
            while filled < len(into):
                if self._tls_error is not None:
                    raise self._tls_error
                try:
                    count = int(self._tls.read(len(into) - filled, into[filled:]))
                except ssl.SSLWantReadError:
                    return filled or None
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    break  # HTTP/2 itself distinguishes a complete response from a truncated one
                except ssl.SSLError as error:
                    self._tls_error = error  # the data before it is valid
                    if filled:
                        break
                    raise
                if not count:
                    break
                filled += count
        return filled

    def _encrypt(self, data: memoryview) -> bytes:
        """Encrypts the data, and takes all bytes now due to be sent to the peer."""
        with self._tls_lock:
            while data:
                data = data[self._tls.write(data) :]
            return self._outgoing.read()

    def _flush_output(self) -> None:
        """Sends TLS's own output, unless another thread is sending: it will send this too."""
        while self._outgoing.pending and self._send_lock.acquire(blocking=False):
            try:
                super().send(self._encrypt(memoryview(b"")))
            finally:
                self._send_lock.release()

    def _map_error(self, error: ssl.SSLError) -> OSError:
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = _REMEDIES.get(error.verify_code, "renew it, or check the clocks")
            return TLSVerificationError(
                f"the certificate of {self._address} could not be verified for "
                f"{self._server_name!r}: {error.verify_message.rstrip('.')}; {remedy}"
            )
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if any(name in (error.reason or "") for name in _REFUSALS):
            return TLSVerificationError(
                f"{self._address} refused the TLS connection: {reason}; use a client certificate "
                f"that it accepts, {spelled('cert', 'key')}"
            )
        return ConnectionAbortedError(f"TLS failed: {reason}")
