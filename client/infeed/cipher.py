"""What travels on a TLS connection, without the connection. Imported only where TLS is used.

Bytes go through memory, not through a socket of OpenSSL's: that one makes two system calls for
every 16 KiB, and must not be read while it is written.
"""

from __future__ import annotations

import ssl
import threading

END = 0
"""What `read` gives when the peer has ended the connection."""


class Cipher:
    """One end of a connection. One thread may read while another writes.

    Every method raises `ssl.SSLError`, an `OSError`, when the peer breaks the rules or refuses.
    """

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool = False, server_name: str | None = None
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._failure: ssl.SSLError | None = None
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """Bytes that are to be sent to the peer."""
        return self._outgoing.pending

    @property
    def protocol(self) -> str | None:
        """What both ends agreed to speak."""
        return self._ssl.selected_alpn_protocol()

    def handshake(self) -> bool:
        """Goes on with the handshake; False while more of the peer's is needed."""
        with self._lock:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                return False
            return True

    def feed(self, data: memoryview) -> None:
        """Takes in what the peer has sent; nothing: it has ended the connection."""
        with self._lock:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def read(self, into: memoryview) -> int | None:
        """As much as there is, in the clear; None: more of the peer's is needed first."""
        filled = 0
        with self._lock:
            while filled < len(into):
                if self._failure is not None:
                    raise self._failure
                try:
                    count = int(self._ssl.read(len(into) - filled, into[filled:]))
                except ssl.SSLWantReadError:
                    return filled or None
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    break  # HTTP/2 itself tells a whole answer from one that was cut off
                except ssl.SSLError as error:
                    self._failure = error  # what was sent before it is good
                    if filled:
                        break
                    raise
                if not count:
                    break
                filled += count
        return filled or END

    def write(self, data: memoryview) -> None:
        """Enciphers data, in the order of the calls; `take` has it then."""
        with self._lock:
            while data:
                data = data[self._ssl.write(data) :]

    def take(self) -> bytes:
        """All that is to be sent to the peer."""
        with self._lock:
            return self._outgoing.read()


__all__ = ["END", "Cipher"]
