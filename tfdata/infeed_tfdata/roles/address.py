"""The advertised address of a dispatcher or worker: parsing, derivation, reachability."""

from __future__ import annotations

import secrets
import socket
import time
from contextlib import suppress
from ipaddress import ip_address

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address

_PUBLIC_ADDRESSES = {4: "192.88.99.1:9", 6: "[2000::1]:9"}
"""Addresses outside every local network, to find the default route. Nothing is sent to them."""

_CONNECT_TIMEOUT_SECONDS = 5.0
"""Seconds for a connection of the reachability check, and for what it sends."""


def parse_advertise(text: str) -> Address:
    """Parses `--advertise`: `HOST:PORT`, or `HOST`, whose port is 0 for the port listened on.

    Raises `ConfigError`.
    """
    if ":" not in text or text.endswith("]") or _is_ip(text):
        address, valid = Address(text.strip("[]"), 0), bool(text)
    else:
        address = Address.parse(text, "--advertise")
        valid = address.port != 0 and not address.is_unix
    if not valid or _is_wildcard(address.host):
        raise ConfigError(
            f"--advertise {text}: not an address that others can connect to; give the name or "
            "address of this host, as HOST for the port that is listened on, or HOST:PORT",
            address=text,
        )
    return address


def derive(listen: Address, peer: str | None = None) -> Address:
    """Returns the address to advertise for a process that listens on `listen`.

    For a specific host it is `listen`. For all addresses its host is the one from which this host
    reaches `peer`, host:port, or, without a peer, the internet. Raises `ConfigError` without a
    route.
    """
    if not _is_wildcard(listen.host):
        return listen
    version = ip_address(listen.host).version
    for target in [peer] if peer else [_PUBLIC_ADDRESSES[version], _PUBLIC_ADDRESSES[10 - version]]:
        if host := _source_host(target):
            return Address(host, listen.port)
    raise ConfigError(
        f"--listen {listen}: no address to advertise, since this host has no route to "
        f"{peer or 'any other'}; give --advertise HOST",
        address=str(listen),
    )


def with_port(address: Address) -> str:
    """Returns the address with TensorFlow's placeholder where the port is 0."""
    return str(address) if address.port else f"{str(address).removesuffix(':0')}:%port%"


def find_reach_problem(listen: Address, advertised: Address) -> str | None:
    """Returns why connections to `advertised` do not reach `listen`, None if they do.

    Listens on `listen` meanwhile, so the port must be free; port 0 of `advertised` stands for it.
    To be called before a worker registers: a dispatcher assigns tasks to a registered address for
    as long as its journal lives.
    """
    token = secrets.token_bytes(16)
    host = listen.host
    if not listen.is_loopback:  # TensorFlow listens on all addresses
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server(
        (host, listen.port), family=family, dualstack_ipv6=host == "::"
    ) as listener:
        port = advertised.port or listener.getsockname()[1]
        try:
            client = socket.create_connection((advertised.host, port), _CONNECT_TIMEOUT_SECONDS)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
            return str(getattr(error, "strerror", None) or error)
        deadline = time.monotonic() + _CONNECT_TIMEOUT_SECONDS
        with client, suppress(OSError):
            client.sendall(token)
            while (left := deadline - time.monotonic()) > 0:  # trainers may connect meanwhile
                listener.settimeout(left)
                with listener.accept()[0] as connection, suppress(TimeoutError):
                    connection.settimeout(1.0)
                    if connection.recv(len(token)) == token:  # it is one segment
                        return None
    return "another process answers there"


def _source_host(peer: str) -> str | None:
    """Returns the source address of packets to host:port. Sends nothing."""
    target = Address.parse(peer)
    with suppress(OSError, UnicodeError):
        resolved = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)
        for family, kind, proto, _, address in resolved:
            with suppress(OSError), socket.socket(family, kind, proto) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return None


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_wildcard(host: str) -> bool:
    return _is_ip(host) and ip_address(host).is_unspecified
