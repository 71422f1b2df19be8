"""The advertised address of a dispatcher or worker: parsing, derivation, reachability."""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address

_PUBLIC_ADDRESSES = {socket.AF_INET: "192.88.99.1", socket.AF_INET6: "2000::1"}
"""Addresses outside every local network, to find the default route. Nothing is sent to them."""

_CONNECT_TIMEOUT_SECONDS = 5.0
"""For a connection of the reachability check, and for its data."""


def parse_advertise(text: str) -> Address:
    """Parses `--advertise`: `HOST:PORT`, or `HOST`, whose port is 0 for the port listened on.

    Raises `ConfigError`.
    """
    if ":" not in text or text.endswith("]") or _is_ip(text):
        address = Address(text.strip("[]"), 0)
    else:
        address = Address.parse(text, "--advertise")
        if address.port == 0 or address.is_unix:
            raise ConfigError(
                f"--advertise {text}: it needs a host and a port other than 0; give HOST, for the "
                "port that is listened on, or HOST:PORT",
                address=text,
            )
    if not address.host or (_is_ip(address.host) and ip_address(address.host).is_unspecified):
        raise ConfigError(
            f"--advertise {text}: not a host that others can connect to; give the name or address "
            "by which they reach this host",
            address=text,
        )
    return address


def derive(listen: Address, peer: str | None = None) -> Address:
    """Returns the address to advertise for a process that listens on `listen`.

    For a specific host it is `listen`. For all addresses its host is the one from which this host
    reaches `peer`, host:port, or, without a peer, the internet. Raises `ConfigError` without a
    route.
    """
    if not (_is_ip(listen.host) and ip_address(listen.host).is_unspecified):
        return listen
    host = _source_host(peer) if peer else _default_source_host(listen.host)
    if host is None:
        raise ConfigError(
            f"--listen {listen}: no address to advertise, since this host has no route to "
            f"{peer or 'any other'}; give --advertise HOST",
            address=str(listen),
        )
    return Address(host, listen.port)


def check_reachable(listen: Address, advertised: Address) -> str | None:
    """Returns why connections to `advertised` do not reach `listen`; None when they do.

    Listens on `listen` meanwhile, so the port must be free. Port 0 of `advertised` stands for the
    port listened on. To be called before a worker registers: a dispatcher assigns work to an
    address for as long as its journal lives.
    """
    token = secrets.token_bytes(16)
    with _Acceptor(_listen_like_tensorflow(listen), token) as acceptor:
        port = advertised.port or acceptor.port
        try:
            client = socket.create_connection((advertised.host, port), _CONNECT_TIMEOUT_SECONDS)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
            return str(getattr(error, "strerror", None) or error)
        with client:
            # Another process at that address may close the connection.
            with suppress(OSError):
                client.sendall(token)
            return None if acceptor.wait() else "another process answers there"


def _listen_like_tensorflow(listen: Address) -> socket.socket:
    """Listens on all addresses, unless `listen` is a loopback address."""
    if listen.is_loopback:
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        return socket.create_server((listen.host, listen.port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", listen.port), family=socket.AF_INET6, dualstack_ipv6=True
        )
    return socket.create_server(("0.0.0.0", listen.port))  # noqa: S104


class _Acceptor:
    """Accepts connections on a thread until one sends the token; others may come from trainers.

    From the beginning: the connections of others can fill the kernel's queue, which then accepts no
    further one, not even the check's own.
    """

    def __init__(self, listener: socket.socket, token: bytes) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._token = token
        self._received = False
        self._done = threading.Event()
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="infeed-address", daemon=True)

    def wait(self) -> bool:
        """Returns whether the token comes in time."""
        self._done.wait(_CONNECT_TIMEOUT_SECONDS)
        return self._received

    def __enter__(self) -> _Acceptor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_writer.close()
        self._thread.join()
        self._stop_reader.close()
        self._listener.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, ExitStack() as accepted:
            self._listener.setblocking(False)
            for each in (self._listener, self._stop_reader):
                selector.register(each, selectors.EVENT_READ)
            while not self._received:
                for key, _ in selector.select():
                    if key.fileobj is self._stop_reader:
                        return
                    with suppress(OSError):
                        self._on_ready(key.fileobj, selector, accepted)
        self._done.set()

    def _on_ready(self, ready: Any, selector: selectors.BaseSelector, accepted: ExitStack) -> None:
        if ready is self._listener:
            connection = accepted.enter_context(self._listener.accept()[0])
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ)
            return
        selector.unregister(ready)
        # The token is one segment.
        self._received |= ready.recv(len(self._token)) == self._token
        ready.close()


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


def _default_source_host(host: str) -> str | None:
    families = [socket.AF_INET, socket.AF_INET6]
    if ip_address(host).version == 6:
        families.reverse()
    for family in families:
        if source := _source_host(str(Address(_PUBLIC_ADDRESSES[family], 9))):
            return source
    return None


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
