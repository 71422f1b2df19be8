"""Limits on trainers: open calls, in total and for each client, and connections."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import resource
from typing import Any

from infeed_server.config.options import Options, option

_IPV6_CLIENT_BITS = 64
"""Prefix of addresses that count as one host, since a host can use any of them."""

_FINGERPRINT_CHARS = 16

_FILE_RESERVE = 256
"""Descriptors that connections leave for data files, or a quarter of all if that is less."""

_MAX_CONNECTIONS = 1024
"""Maximum open connections, with or without a token; further ones are closed at once."""


def _limit(default: Any, text: str, metavar: str = "N") -> Any:
    return option(default, text, "Limits on trainers", metavar=metavar, min=1)


class Limits(Options):
    """Limits of the server and, as `peer_`, of one client: a token, else a client certificate, else
    a host."""

    max_streams: int = _limit(256, "Maximum open batch streams.")
    peer_streams: int = _limit(128, "Maximum open batch streams of one client.")
    max_calls: int = _limit(64, "Maximum open calls to other methods.")
    """Counted apart from streams, so that pipelines can be listed while all streams are in use."""
    peer_calls: int = _limit(32, "Maximum open calls of one client to other methods.")
    max_connection_age: float | None = _limit(
        None,
        "Seconds after which trainers move to new connections, so that a load balancer can "
        "redistribute them. Default: no limit.",
        "SECONDS",
    )
    max_connection_age_grace: float = _limit(
        60.0, "Seconds that streams on such a connection then have to end.", "SECONDS"
    )


def client_name(peer: str, certificate: bytes | None = None) -> str:
    """Returns the name under which a client without a token is counted, from its certificate or
    host. `peer` is host:port; clients of a Unix socket have no address and the empty name."""
    if certificate is not None:
        return f"the certificate {hashlib.sha256(certificate).hexdigest()[:_FINGERPRINT_CHARS]}"
    host = peer.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_CLIENT_BITS), strict=False))


def raise_file_limit() -> None:
    """Raises the limit of open files to what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems allow less than they report
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def max_connections() -> int:
    """Returns how many connections leave enough descriptors for data files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, limit - min(_FILE_RESERVE, limit // 4))
