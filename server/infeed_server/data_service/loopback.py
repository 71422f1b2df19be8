"""The restriction of TensorFlow's listeners to loopback.

TensorFlow's processes listen on every address, without encryption or authentication, whatever
address is configured. Once they listen, the kernel can restrict their sockets to loopback.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.data_service.sockets import process_sockets

log = logging.getLogger(__name__)

LOOPBACK_DEVICE = b"lo\0"


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

    Connections that other machines opened before are closed.
    """
    option = getattr(socket, "SO_BINDTODEVICE", None)
    if option is None:
        return False
    restricted = False
    for listener in process_sockets(port, listening=True):
        try:
            listener.setsockopt(socket.SOL_SOCKET, option, LOOPBACK_DEVICE)
        except OSError:  # some kernels allow it to root alone
            return False
        if listener.getsockopt(socket.SOL_SOCKET, option, 16) != LOOPBACK_DEVICE:
            return False
        restricted = True
    for connection in process_sockets(port, listening=False):
        _close_remote_peer(connection)
    return restricted


def _close_remote_peer(connection: socket.socket) -> None:
    with suppress(OSError):  # the peer may have disconnected
        peer = ip_address(connection.getpeername()[0].partition("%")[0])
        if isinstance(peer, IPv6Address):
            peer = peer.ipv4_mapped or peer
        if not peer.is_loopback:
            connection.shutdown(socket.SHUT_RDWR)
