"""The address that others are told: where a process of the service is found from elsewhere."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address

from infeed.errors import ConfigError
from infeed_server.config.address import Address

_ANYWHERE = {socket.AF_INET: "192.88.99.1", socket.AF_INET6: "2000::1"}
"""An address beyond every local network, for the default route. Nothing is sent there."""


def parse_advertise(text: str) -> Address:
    """What `--advertise` says: `HOST`, whose port is 0 for the one that is listened on, or
    `HOST:PORT`. Raises `ConfigError`."""
    if ":" not in text or text.endswith("]") or _is_ip(text):
        address = Address(text.strip("[]"), 0)
    else:
        address = Address.parse(text)
        if address.port == 0 or address.is_unix:
            raise ConfigError(
                f"--advertise {text}: give HOST, for the port that is listened on, or HOST:PORT",
                address=text,
            )
    if not address.host or (_is_ip(address.host) and ip_address(address.host).is_unspecified):
        raise ConfigError(
            f"--advertise {text}: nobody can connect to that; name the host by which others reach "
            "this one",
            address=text,
        )
    return address


def derive(listen: Address, toward: str | None = None) -> Address:
    """The address for one that listens on `listen`, with the same port.

    A specific host is itself; for all addresses, the one from which this host reaches `toward`,
    host:port, or the rest of the world. Raises `ConfigError` when there is none.
    """
    if not (_is_ip(listen.host) and ip_address(listen.host).is_unspecified):
        return listen
    host = _source(toward) if toward else _default_source(listen.host)
    if host is None:
        raise ConfigError(
            f"--listen {listen}: this host has no route to "
            f"{toward or 'any other'} that would tell its address; give --advertise HOST",
            address=str(listen),
        )
    return Address(host, listen.port)


def _source(toward: str) -> str | None:
    """The address that packets to host:port are sent from. Nothing is sent."""
    place = Address.parse(toward)
    with suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_DGRAM)
        for family, kind, proto, _, address in found:
            with suppress(OSError), socket.socket(family, kind, proto) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return None


def _default_source(host: str) -> str | None:
    families = [socket.AF_INET, socket.AF_INET6]
    if ip_address(host).version == 6:
        families.reverse()
    for family in families:
        if found := _source(str(Address(_ANYWHERE[family], 9))):
            return found
    return None


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
