"""The advertised address of a dispatcher or worker: parsing, derivation, reachability."""

from __future__ import annotations

import secrets
import socket
import time
from contextlib import suppress

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address

_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104

_PUBLIC_ADDRESSES = ("192.88.99.1:9", "[2000::1]:9")
"""Addresses outside every local network, to find the default route. Nothing is sent to them."""

_CONNECT_TIMEOUT_SECONDS = 5.0
"""Seconds for the reachability check to connect, and for its data to arrive."""


def parse_advertise(text: str) -> Address:
    """Parses the value of `--advertise`, `HOST:PORT` or `HOST`; port 0 means the port listened on.

    Raises `ConfigError`.
    """
    has_port = ":" in text and not text.endswith("]")
    address = Address.parse(text if has_port else f"{text}:0", "--advertise")
    if address.is_unix or address.host in _WILDCARDS or (has_port and not address.port):
        raise ConfigError(
            f"--advertise {text}: not an address that others can connect to; give this host's name "
            "or address, as HOST for the port listened on, or HOST:PORT",
            address=text,
        )
    return address


def derive(listen: Address, peer: str | None = None) -> Address:
    """Returns the address to advertise for a process that listens on `listen`.

    If `listen` is a wildcard, it is the address from which this host reaches `peer`, host:port, or
    without a peer the internet. Raises `ConfigError` without a route.
    """
    if listen.host not in _WILDCARDS:
        return listen
    for target in map(Address.parse, [peer] if peer else _PUBLIC_ADDRESSES):
        family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
        with suppress(OSError, UnicodeError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target.host, target.port))  # sends nothing
            return Address(probe.getsockname()[0], listen.port)
    raise ConfigError(
        f"--listen {listen}: no address to advertise, since this host has no route to "
        f"{peer or 'any other'}; give --advertise HOST",
        address=str(listen),
    )


def with_port(address: Address) -> str:
    """Returns the address, with TensorFlow's placeholder for port 0."""
    return str(address) if address.port else f"{str(address).removesuffix(':0')}:%port%"


def find_reach_problem(listen: Address, advertised: Address) -> str | None:
    """Returns why connections to `advertised` do not reach `listen`; None if they do.

    The port of `listen` must be free. Call it before a worker registers, as a dispatcher assigns
    tasks to a registered address as long as its journal exists.
    """
    token = secrets.token_bytes(16)
    host = listen.host
    if not listen.is_loopback:  # TensorFlow listens on all addresses
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
    with Address(host, listen.port).listen() as listener:
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
                    if connection.recv(len(token)) == token:  # it arrives as one segment
                        return None
    return "another process answers there"
