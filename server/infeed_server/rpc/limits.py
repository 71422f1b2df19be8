"""How many of a thing may be open at a time: in all, and from one peer's host."""

from __future__ import annotations

from collections import Counter

MAX_PEER_STREAMS = 128
"""Streams that one host may have open, unless the operator gives another number."""


class Limit:
    """Counts what is open. Not thread-safe."""

    def __init__(self, what: str, most: int, most_of_one: int | None = None) -> None:
        """`what` is for messages: "streams"."""
        self._what = what
        self._most = most
        self._most_of_one = most if most_of_one is None else most_of_one
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def enter(self, peer: str) -> str | None:
        """Counts one in; or says why there is no room for it."""
        host = _host(peer)
        if len(self) >= self._most:
            return f"the server has {self._most} {self._what} open already"
        # Everybody on this machine who uses a Unix socket is one host: that tells nothing.
        if host and self._open[host] >= self._most_of_one:
            return f"{host} has {self._most_of_one} {self._what} open already"
        self._open[host] += 1
        return None

    def leave(self, peer: str) -> None:
        """Counts one out."""
        host = _host(peer)
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]


def _host(peer: str) -> str:
    """Of "host:port"; nothing of a Unix socket's peer."""
    return peer.rpartition(":")[0]
