"""Port of loopback that stays reserved while the server that owns it is down."""

from __future__ import annotations

import socket


class ReservedPort:
    """Keeps a socket bound to a free port, but does not listen on it: a connection is refused.

    While it is open, the system gives the port to no outgoing connection and to no other server
    that asks for a free one; a server that asks for this port, with SO_REUSEADDR, gets it.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        # Only now: a port that is bound with this option could be one that is in use.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.number}"

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> ReservedPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["ReservedPort"]
