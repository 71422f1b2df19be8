"""The restriction of TensorFlow's listeners to loopback.

TensorFlow's processes listen on every address regardless of the configured one, without encryption
or authentication, and run any graph. Once they listen, the kernel can restrict their sockets.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address

log = logging.getLogger(__name__)

_DESCRIPTORS = Path("/proc/self/fd")
_LOOPBACK_DEVICE = b"lo\0"


def check_listen_address(listen: Address, *, insecure: bool) -> None:
    """Raises `ConfigError` for an address that TensorFlow cannot listen on, that is in use, or that
    needs `--insecure` because other machines can reach it."""
    subject = f"{listen.option or '--listen'} {listen}"
    if listen.is_unix:
        raise ConfigError(f"{subject}: TensorFlow's processes need host:port", address=str(listen))
    if not (insecure or listen.is_loopback):
        raise ConfigError(
            f"{subject}: non-loopback address, and TensorFlow's processes use neither encryption "
            "nor authentication; add --insecure if the network is trusted, or listen on 127.0.0.1",
            address=str(listen),
        )
    listen.require_free()
    # TensorFlow listens on all addresses, and silently shares a port with another TensorFlow
    # process.
    everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
    Address(everywhere, listen.port, listen.option).require_free()


def restrict_if_loopback(listen: Address, port: int, *, insecure: bool) -> None:
    """Restricts the server on `port` to loopback if `listen` is a loopback address.

    Raises `ConfigError` if the system cannot do that, unless `insecure`.
    """
    if not listen.is_loopback or restrict_to_loopback(port):
        return
    problem = "other machines can reach it, since this system cannot restrict it to loopback"
    if not insecure:
        raise ConfigError(
            f"--listen {listen}: {problem}, and TensorFlow's processes use neither encryption nor "
            "authentication; add --insecure if the network is trusted",
            address=str(listen),
        )
    log.warning("--listen %s: %s", listen, problem)


def restrict_to_loopback(port: int) -> bool:
    """Restricts the listeners on `port` to loopback. Returns whether the kernel did.

    Connections opened earlier are closed.
    """
    option = getattr(socket, "SO_BINDTODEVICE", None)
    if option is None:
        return False
    restricted = False
    for listener in _sockets(port, listening=True):
        try:
            listener.setsockopt(socket.SOL_SOCKET, option, _LOOPBACK_DEVICE)
        except OSError:  # some kernels allow it only for root
            return False
        if listener.getsockopt(socket.SOL_SOCKET, option, 16) != _LOOPBACK_DEVICE:
            return False
        restricted = True
    for connection in _sockets(port, listening=False):
        with suppress(OSError):  # the peer may have disconnected
            connection.shutdown(socket.SHUT_RDWR)
    return restricted


def _sockets(port: int, *, listening: bool) -> Iterator[socket.socket]:
    """Yields this process's listeners or connections on the local TCP port, including TensorFlow's.

    Each is a duplicate, open until the next one. A system without /proc has none.
    """
    for entry in _DESCRIPTORS.iterdir() if _DESCRIPTORS.is_dir() else ():
        if not entry.is_socket():
            continue
        # A duplicate, since other threads close and reuse descriptors meanwhile.
        with suppress(OSError), socket.fromfd(int(entry.name), socket.AF_INET, 0) as duplicate:
            option = duplicate.getsockopt
            is_tcp = option(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
            listens = bool(option(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            if is_tcp and listens == listening and duplicate.getsockname()[1] == port:
                yield duplicate
