"""TLS without I/O: the client's end of a connection, between plaintext and records in memory.

OpenSSL's own socket needs two system calls for every 16 KiB, and does not allow one thread to read
while another writes. Imported only where TLS is used.
"""

from __future__ import annotations

import ssl
import threading


class TLSEngine:
    """The client's end of a TLS connection. One thread may read while another writes.

    Methods raise `ssl.SSLError`, an `OSError`, when the peer violates the protocol or sends a
    fatal alert.
    """

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._read_error: ssl.SSLError | None = None
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """Bytes to send to the peer."""
        return self._outgoing.pending

    @property
    def protocol(self) -> str | None:
        """The protocol negotiated by ALPN."""
        return self._ssl.selected_alpn_protocol()

    def handshake(self) -> bool:
        """Advances the handshake; returns False while it needs more bytes of the peer."""
        with self._lock:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                return False
            return True

    def feed(self, data: memoryview) -> None:
        """Passes in bytes received from the peer; none: the peer has closed the connection."""
        with self._lock:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def read(self, into: memoryview) -> int | None:
        """Decrypts as much as there is, and returns its size: 0 at the end of the connection, None
        if more of the peer's bytes are needed first."""
        filled = 0
        with self._lock:
            while filled < len(into):
                if self._read_error is not None:
                    raise self._read_error
                try:
                    count = int(self._ssl.read(len(into) - filled, into[filled:]))
                except ssl.SSLWantReadError:
                    return filled or None
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    break  # HTTP/2 itself distinguishes a complete response from a truncated one
                except ssl.SSLError as error:
                    self._read_error = error  # the data before it is valid
                    if filled:
                        break
                    raise
                if not count:
                    break
                filled += count
        return filled

    def write(self, data: memoryview) -> None:
        """Encrypts data, in the order of the calls; `take` then returns it."""
        with self._lock:
            while data:
                data = data[self._ssl.write(data) :]

    def take(self) -> bytes:
        """Returns, once, all bytes to send to the peer."""
        with self._lock:
            return self._outgoing.read()
