"""The restriction of TensorFlow's listeners to loopback.

TensorFlow's processes listen on every address, without encryption or authentication, whatever
address is configured, and run any graph. Once they listen, the kernel can restrict their sockets.
"""

from __future__ import annotations

import logging
import os
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
    other machines can reach without `--insecure`."""
    if listen.is_unix:
        raise ConfigError(
            f"--listen {listen}: TensorFlow's processes need host:port", address=str(listen)
        )
    if not (insecure or listen.is_loopback):
        raise ConfigError(
            f"--listen {listen}: non-loopback address, and TensorFlow's processes use "
            "neither encryption nor authentication; add --insecure if the network is trusted, or "
            "listen on 127.0.0.1",
            address=str(listen),
        )
    listen.require_free()
    # TensorFlow listens on all addresses, and silently shares a port that another TensorFlow
    # process has.
    everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
    Address(everywhere, listen.port, listen.option).require_free()


def restrict_if_loopback(listen: Address, port: int, *, insecure: bool) -> None:
    """Restricts the server on `port` to loopback if `listen` is a loopback address.

    Raises `ConfigError` where the system cannot do that, unless `insecure`.
    """
    if not listen.is_loopback or restrict_to_loopback(port):
        return
    if not insecure:
        raise ConfigError(
            f"--listen {listen}: TensorFlow's processes listen on every address, without "
            "encryption or authentication, and this system cannot restrict them to loopback; add "
            "--insecure if the network is trusted",
            address=str(listen),
        )
    log.warning("other machines can reach %s: this system cannot restrict it to loopback", listen)


def restrict_to_loopback(port: int) -> bool:
    """Restricts the listeners on `port` to loopback, and returns whether the kernel does that.

    Connections that were opened before are closed.
    """
    option = getattr(socket, "SO_BINDTODEVICE", None)
    if option is None:
        return False
    restricted = False
    for listener in _sockets(port, listening=True):
        try:
            listener.setsockopt(socket.SOL_SOCKET, option, _LOOPBACK_DEVICE)
        except OSError:  # some kernels allow it to root alone
            return False
        if listener.getsockopt(socket.SOL_SOCKET, option, 16) != _LOOPBACK_DEVICE:
            return False
        restricted = True
    for connection in _sockets(port, listening=False):
        with suppress(OSError):  # the peer may have disconnected
            connection.shutdown(socket.SHUT_RDWR)
    return restricted


def _sockets(port: int, *, listening: bool) -> Iterator[socket.socket]:
    """Yields this process's TCP sockets with the local port: listeners, or connections.

    They include TensorFlow's. A duplicate is open while it is yielded. A system without /proc has
    none.
    """
    if not _DESCRIPTORS.is_dir():
        return
    for entry in _DESCRIPTORS.iterdir():
        # A duplicate, since other threads close and reuse descriptors meanwhile.
        with suppress(OSError), _duplicate(int(entry.name)) as duplicate:
            is_tcp = duplicate.family in (socket.AF_INET, socket.AF_INET6)
            if not is_tcp or duplicate.type != socket.SOCK_STREAM:
                continue
            listens = duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if duplicate.getsockname()[1] == port and bool(listens) == listening:
                yield duplicate


def _duplicate(descriptor: int) -> socket.socket:
    """Duplicates a descriptor. Raises `OSError` when it is not a socket."""
    number = os.dup(descriptor)
    try:
        return socket.socket(fileno=number)
    except OSError:
        os.close(number)
        raise
