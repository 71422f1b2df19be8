"""Loopback port that stays reserved while its server is down."""

from __future__ import annotations

import socket


class ReservedPort:
    """Keeps a socket bound to a free port without listening: connections are refused.

    While it is open, the system does not assign the port to outgoing connections or to servers that
    bind to port 0. A server can bind to it with SO_REUSEADDR.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        # After bind: with this option, bind could choose a port in use.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.number}"

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> ReservedPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["ReservedPort"]
