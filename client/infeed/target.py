"""Targets: where servers are, as users write it."""

from __future__ import annotations

import ipaddress
import socket

from infeed.errors import InvalidRequestError

_SCHEMES = ("dns", "ipv4", "ipv6")

SocketAddress = tuple[socket.AddressFamily, str | tuple[str, int]]
"""What a socket connects to."""


def parse_target(target: str) -> tuple[str, ...]:
    """The addresses of a comma-separated target, as gRPC writes them.

    Raises `InvalidRequestError` for an address without a port, which has no default.
    """
    addresses = tuple(part.strip() for part in target.split(",") if part.strip())
    if not addresses:
        raise InvalidRequestError(f"{target!r} names no server; say host:port", target=target)
    for address in addresses:
        host, port = _host_and_port(address)
        if "\0" in address or not (is_unix(address) or (host and _is_port(port))):
            raise InvalidRequestError(
                f"the target {address!r} has no host and port; say host:port, dns:///host:port or "
                "unix:/path, several separated by commas",
                target=target,
            )
    return addresses


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= 5 and int(text) < 1 << 16


def is_unix(address: str) -> bool:
    return address.startswith(("unix:", "unix-abstract:"))


def host(address: str) -> str:
    """The name or number of the server's host, without brackets."""
    return "localhost" if is_unix(address) else _host_and_port(address)[0].strip("[]")


def is_local(address: str) -> bool:
    """Whether what is sent there stays on this machine."""
    name = host(address)
    if is_unix(address) or name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def authority(address: str) -> str:
    """What HTTP calls the server: host:port."""
    return "localhost" if is_unix(address) else ":".join(_host_and_port(address))


def resolve(address: str) -> list[SocketAddress]:
    """The socket addresses of an address, in the order to try them. Raises `OSError`."""
    try:
        return _resolve(address)
    except UnicodeError as error:  # Python's own, before it asks anybody
        raise OSError(f"no host can have that name ({error})") from error


def servers(address: str) -> list[str]:
    """The servers that an address stands for: each host of a name that has several."""
    if is_unix(address):
        return [address]
    try:
        found = resolve(address)
    except OSError:
        return [address]  # whoever connects to it says why
    _, port = _host_and_port(address)
    for family, form in ((socket.AF_INET, "{}:{}"), (socket.AF_INET6, "[{}]:{}")):
        hosts = sorted({str(where[0]) for kind, where in found if kind == family})
        if hosts:
            # Of one host, IPv4 and IPv6 addresses are tried in turn; so its name is kept.
            return [form.format(host, port) for host in hosts] if len(hosts) > 1 else [address]
    return [address]


def _resolve(address: str) -> list[SocketAddress]:
    if address.startswith("unix-abstract:"):
        return [(socket.AF_UNIX, "\0" + address.removeprefix("unix-abstract:"))]
    if is_unix(address):
        path = address.removeprefix("unix:")
        return [(socket.AF_UNIX, path.removeprefix("//") if path.startswith("///") else path)]
    host, port = _host_and_port(address)
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    return [(family, (str(where[0]), int(where[1]))) for family, _, _, _, where in found]


def _host_and_port(address: str) -> tuple[str, str]:
    scheme, colon, rest = address.partition(":")
    if colon and scheme in _SCHEMES:
        address = rest.rpartition("/")[2]  # dns:///host:port, dns://authority/host:port
    host, _, port = address.rpartition(":")
    return host, port


__all__ = [
    "SocketAddress",
    "authority",
    "host",
    "is_local",
    "is_unix",
    "parse_target",
    "resolve",
    "servers",
]
