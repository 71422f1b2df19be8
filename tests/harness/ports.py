"""Ports that stay reserved while their servers are down."""

from __future__ import annotations

import socket


class ReservedPort:
    """Keeps a socket bound to a free port without listening: connections are refused.

    While it is open, the system does not assign the port, at any address of this machine, to
    outgoing connections or to servers that bind to port 0. A server can bind to it with
    SO_REUSEADDR.
    """

    def __init__(self) -> None:
        # At all addresses: some proxies listen on all, and a server of another test at 127.0.0.2
        # would be in their way.
        self._socket = _bound_to_all_addresses()
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


def _bound_to_all_addresses() -> socket.socket:
    """Returns a socket of both families, or of IPv4 where the system has no IPv6."""
    if not socket.has_dualstack_ipv6():
        ipv4 = socket.socket()
        ipv4.bind(("", 0))
        return ipv4
    both = socket.socket(socket.AF_INET6)
    both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    both.bind(("", 0))
    return both
