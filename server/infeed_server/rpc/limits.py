"""Limits on open calls: in total, and of each client."""

from __future__ import annotations

import hashlib
import ipaddress
from collections import Counter
from dataclasses import dataclass

_IPV6_CLIENT_BITS = 64
"""Prefix of the addresses that count as one host: a host can use any of them."""

_FINGERPRINT_CHARS = 16


@dataclass(frozen=True)
class Limits:
    """How many calls clients may have open: all together, and each of them (`peer_`)."""

    streams: int = 256
    """StreamBatches calls."""
    peer_streams: int = 128
    calls: int = 64
    """Other calls, so that pipelines can be listed while all streams are in use."""
    peer_calls: int = 32


class LimitReachedError(Exception):
    """A limit is reached; the message says which, and how to raise it."""

    def __init__(self, kind: str, client: str | None, limit: int) -> None:
        """`client` None: the limit of all clients."""
        super().__init__(
            f"{client or 'the server'} has {limit} {kind} open already: close some"
            + ("" if " " in kind else f", or raise --{'peer' if client else 'max'}-{kind}")
        )
        self.kind = kind
        self.client = client


class ConcurrencyLimit:
    """Counts what is open, in total and by client. Not thread-safe."""

    def __init__(self, kind: str, limit: int, limit_per_client: int) -> None:
        """`kind` is a plural for messages, such as "streams"; of one word where an option with
        that name sets the limit."""
        self._kind = kind
        self._limit = limit
        self._limit_per_client = limit_per_client
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def acquire(self, client: str) -> None:
        """Counts one more of the client. Raises `LimitReachedError`."""
        if len(self) >= self._limit:
            raise LimitReachedError(self._kind, None, self._limit)
        # All clients of a Unix socket are the empty one, which has no limit of its own.
        if client and self._open[client] >= self._limit_per_client:
            raise LimitReachedError(self._kind, client, self._limit_per_client)
        self._open[client] += 1

    def release(self, client: str) -> None:
        """Counts one less of the client."""
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


def client_name(peer: str, certificate: bytes | None = None) -> str:
    """Returns the name under which a client without a token is counted: of its certificate or host.

    `peer` is host:port, or no address for a Unix socket, whose clients have the empty name.
    """
    if certificate is not None:
        return f"the certificate {hashlib.sha256(certificate).hexdigest()[:_FINGERPRINT_CHARS]}"
    host = peer.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_CLIENT_BITS), strict=False))
