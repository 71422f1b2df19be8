"""Limits on open connections and calls: in total, and of each client host."""

from __future__ import annotations

from collections import Counter

MAX_PEER_STREAMS = 128
"""Default number of streams that one host may have open."""


class ConcurrencyLimit:
    """Counts what is open, in total and by host. Not thread-safe."""

    def __init__(self, kind: str, limit: int, limit_per_host: int | None = None) -> None:
        """`kind` is a plural for messages, such as "streams"."""
        self._kind = kind
        self._limit = limit
        self._limit_per_host = limit if limit_per_host is None else limit_per_host
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def acquire(self, peer: str) -> str | None:
        """Counts one more of `peer`, or returns which limit is reached."""
        host = _host(peer)
        if len(self) >= self._limit:
            return f"the server has {self._limit} {self._kind} open already"
        # All clients of a Unix socket have the empty host, which has no limit of its own.
        if host and self._open[host] >= self._limit_per_host:
            return f"{host} has {self._limit_per_host} {self._kind} open already"
        self._open[host] += 1
        return None

    def release(self, peer: str) -> None:
        """Counts one less of `peer`."""
        host = _host(peer)
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]


def _host(peer: str) -> str:
    """Returns the host of "host:port"; nothing for a Unix socket's peer."""
    return peer.rpartition(":")[0]
