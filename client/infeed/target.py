"""Targets: where servers are, as users write it."""

from __future__ import annotations

from infeed.errors import InvalidRequestError


def parse_target(target: str) -> tuple[str, ...]:
    """The addresses of a comma-separated target, as gRPC takes them.

    Raises `InvalidRequestError` for an address without a port: gRPC would take 443 for it.
    """
    addresses = tuple(part.strip() for part in target.split(",") if part.strip())
    if not addresses:
        raise InvalidRequestError(f"{target!r} names no server; say host:port", target=target)
    for address in addresses:
        port = address.rpartition(":")[2]
        if not address.startswith(("unix:", "unix-abstract:")) and not port.isdecimal():
            raise InvalidRequestError(
                f"the target {address!r} has no port; say host:port, dns:///host:port or "
                "unix:/path, several separated by commas",
                target=target,
            )
    return addresses


__all__ = ["parse_target"]
