"""What TensorFlow's processes listen on, kept to this machine.

They listen on every address there is, without encryption and without asking who calls, whatever
they are told. The kernel can be told, once they listen, to let in only what comes over loopback.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from infeed.errors import ConfigError
from infeed_server.cluster.sockets import owned
from infeed_server.config.address import Address

log = logging.getLogger(__name__)

LOOPBACK = b"lo\0"

_OPEN = (
    "TensorFlow's processes listen on every address, without encryption and without asking who "
    "calls"
)


def require_listen(listen: Address, *, insecure: bool) -> None:
    """Raises `ConfigError` for an address that TensorFlow cannot be given, that is taken, or that
    strangers can reach while nobody said `--insecure`."""
    if listen.is_unix:
        raise ConfigError(
            f"--listen {listen}: TensorFlow's processes need host:port", address=str(listen)
        )
    if not (insecure or listen.is_loopback):
        raise ConfigError(
            f"--listen {listen}: other machines could connect, and {_OPEN}; add --insecure if the "
            "network is trusted, or listen on 127.0.0.1",
            address=str(listen),
        )
    listen.require_free()
    # TensorFlow takes the port on all addresses, and where another process of its own has it, it
    # shares it without a word.
    Address("::" if socket.has_dualstack_ipv6() else "0.0.0.0", listen.port).require_free()  # noqa: S104


def keep_to_loopback(listen: Address, port: int, *, insecure: bool) -> None:
    """Confines the server that listens on `port` for `listen`, where that is a loopback address.

    Raises `ConfigError` where it cannot be done and nobody said `insecure`.
    """
    if not listen.is_loopback or confine(port):
        return
    if not insecure:
        raise ConfigError(
            f"--listen {listen}: {_OPEN}, and this system cannot keep them to loopback; add "
            "--insecure if the network is trusted",
            address=str(listen),
        )
    log.warning("%s is open to other machines: this system cannot keep it to loopback", listen)


def confine(port: int) -> bool:
    """Has the kernel refuse what does not come over loopback; whether it does.

    Who came from elsewhere before is cut off.
    """
    option = getattr(socket, "SO_BINDTODEVICE", None)
    if option is None:
        return False
    confined = False
    for found in owned(port):
        if found.listens:
            try:
                found.socket.setsockopt(socket.SOL_SOCKET, option, LOOPBACK)
            except OSError:  # a kernel that lets only root do it
                return False
            kept = found.socket.getsockopt(socket.SOL_SOCKET, option, 16)
            if kept != LOOPBACK:
                return False
            confined = True
    for found in owned(port):
        if not found.listens:
            _cut_stranger(found.socket)
    return confined


def _cut_stranger(accepted: socket.socket) -> None:
    with suppress(OSError):  # it may be gone already
        peer = ip_address(accepted.getpeername()[0].partition("%")[0])
        if isinstance(peer, IPv6Address):
            peer = peer.ipv4_mapped or peer
        if not peer.is_loopback:
            accepted.shutdown(socket.SHUT_RDWR)
