"""Server addresses: parsing and resolution of targets as users write them."""

from __future__ import annotations

import ipaddress
import os
import socket

from infeed.shared.arguments import check_text
from infeed.shared.errors import InvalidRequestError

SocketAddress = tuple[socket.AddressFamily, str | tuple[str, int]]
"""Address family, and the address in the form that `socket.connect` takes."""

_MAX_SOCKET_PATH = 107
"""Bytes of the path of a Unix socket, without the null byte at its end."""


def parse_target(target: str) -> tuple[str, ...]:
    """Splits a comma-separated target into addresses."""
    if target != "":
        check_text("target", target, '"127.0.0.1:7470"')
    addresses = tuple(part.strip() for part in target.split(",") if part.strip())
    if not addresses:
        raise InvalidRequestError(f"target {target!r} has no address; use host:port", target=target)
    for address in addresses:
        scheme, separator, rest = address.partition("://")
        if separator and scheme not in ("dns", "unix"):
            tls = ", and turn TLS on: tls=True, or --tls" if scheme in ("https", "grpcs") else ""
            raise InvalidRequestError(
                f"target {address!r} is a URL; leave out {scheme}:// and give host:port, such as "
                f"{rest.partition('/')[0]!r}{tls}",
                target=address,
            )
        host, port = _split_host_port(address)
        is_port = port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16
        is_valid = bool(_socket_path(address).strip("/")) if is_unix(address) else host and is_port
        if is_unix(address) and len(os.fsencode(_socket_path(address))) > _MAX_SOCKET_PATH:
            raise InvalidRequestError(
                f"target {address!r} has a path of more than {_MAX_SOCKET_PATH} bytes, too long "
                "for a socket; use a shorter one, such as unix:/run/infeed/socket",
                target=address,
            )
        if "\0" in address or not is_valid:
            raise InvalidRequestError(
                f"target {address!r} has no host and port; use host:port, dns:///host:port or "
                "unix:/path, several separated by commas",
                target=target,
            )
    return addresses


def is_unix(address: str) -> bool:
    return address.startswith("unix:")


def host_name(address: str) -> str:
    """Returns the name or IP address of an address's host, without brackets."""
    return "localhost" if is_unix(address) else _split_host_port(address)[0].strip("[]")


def is_local(address: str) -> bool:
    """Returns whether traffic to an address stays on this machine."""
    name = host_name(address)
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def authority(address: str) -> str:
    """Returns HTTP's `:authority` for an address: host:port."""
    return "localhost" if is_unix(address) else ":".join(_split_host_port(address))


def resolve(address: str) -> list[SocketAddress]:
    """Returns the socket addresses of an address, in the order to try them. Raises `OSError`."""
    if is_unix(address):
        return [(socket.AF_UNIX, _socket_path(address))]
    host, port = _split_host_port(address)
    try:
        infos = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except UnicodeError as error:  # raised by Python before the name is looked up
        raise OSError(f"invalid host name ({error})") from error
    return [(family, (str(item[0]), int(item[1]))) for family, _, _, _, item in infos]


def expand_hosts(address: str) -> list[str]:
    """Returns an address for each host of a name that has several, else the address itself."""
    if is_unix(address):
        return [address]
    try:
        resolved = resolve(address)
    except OSError:
        return [address]  # connecting to it reports the reason
    _, port = _split_host_port(address)
    for family, form in ((socket.AF_INET, "{}:{}"), (socket.AF_INET6, "[{}]:{}")):
        hosts = sorted({str(item[0]) for kind, item in resolved if kind == family})
        if hosts:
            # The IPv4 and IPv6 addresses of one host are tried in turn, so its name is kept.
            return [form.format(host, port) for host in hosts] if len(hosts) > 1 else [address]
    return [address]


def _socket_path(address: str) -> str:
    path = address.removeprefix("unix:")
    return path.removeprefix("//") if path.startswith("///") else path


def _split_host_port(address: str) -> tuple[str, str]:
    if address.startswith("dns:"):  # dns:///host:port
        address = address.removeprefix("dns:").rpartition("/")[2]
    host, _, port = address.rpartition(":")
    return host, port
