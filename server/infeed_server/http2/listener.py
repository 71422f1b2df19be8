"""Listening sockets for all addresses of a host, or for a Unix socket path."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_BACKLOG = 1024
_ACCEPT_RETRY_INTERVAL_SECONDS = 0.1
"""Pause after a failed accept, such as for lack of file descriptors."""

_MAX_BIND_ATTEMPTS = 10
"""Attempts to find a port that is free at all addresses of a host."""

_PROBE_TIMEOUT_SECONDS = 1.0

OnConnection = Callable[[socket.socket, str], None]


class Listener:
    """Listens from its construction; `start` begins to accept connections."""

    def __init__(self, address: str, *, share_port: bool = False) -> None:
        """`address` is host:port or unix:path. Raises `OSError` when it cannot be bound."""
        self._path = address[5:] if address.startswith("unix:") else None
        self.port = 0
        """The bound port; 0 for a Unix socket."""
        if self._path is not None:
            self._sockets = [_bind_path(self._path)]
            self._file_id = _file_id(self._path)
        else:
            host, _, port = address.rpartition(":")
            self._sockets = _bind_host(host.strip("[]"), int(port), share_port)
            self.port = self._sockets[0].getsockname()[1]
        self._closed = False
        self._threads: list[threading.Thread] = []

    def start(self, on_connection: OnConnection) -> None:
        """Calls `on_connection` with each connection and its peer's name, on own threads."""
        for sock in self._sockets:
            thread = threading.Thread(
                target=self._accept, args=(sock, on_connection), name="infeed-listen", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stops accepting and frees the address. May be called again."""
        self._closed = True
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        for thread in self._threads:
            thread.join()
        for sock in self._sockets:
            sock.close()
        if self._path is not None and _file_id(self._path) == self._file_id:
            with contextlib.suppress(OSError):
                Path(self._path).unlink()
            self._path = None

    def _accept(self, sock: socket.socket, on_connection: OnConnection) -> None:
        while not self._closed:
            try:
                connection, address = sock.accept()
            except OSError as error:
                if not self._closed:
                    log.warning("cannot accept a connection: %s", error)
                    time.sleep(_ACCEPT_RETRY_INTERVAL_SECONDS)
                continue
            try:
                on_connection(connection, _peer_name(address))
            except Exception:  # later connections must be accepted all the same
                log.exception("cannot serve a connection")
                connection.close()


def _peer_name(address: Any) -> str:
    if not isinstance(address, tuple):
        return "unix"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_host(host: str, port: int, share_port: bool) -> list[socket.socket]:
    """Returns a socket for each address of the host, all with one port."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in infos))
    for _ in range(_MAX_BIND_ATTEMPTS if port == 0 else 1):
        # A port that is free at one address may be in use at another.
        try:
            return _bind_addresses(addresses, port, share_port)
        except OSError as error:
            last_error = error
    raise last_error


def _bind_addresses(
    addresses: Sequence[tuple[socket.AddressFamily, Any]], port: int, share_port: bool
) -> list[socket.socket]:
    """Skips addresses that this machine does not have, unless it has none of them."""
    sockets: list[socket.socket] = []
    last_error = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for family, address in addresses:
        try:
            sockets.append(_bind(family, (address[0], port, *address[2:]), share_port))
        except OSError as error:
            last_error = error
            if error.errno == errno.EADDRINUSE:
                break
        else:
            port = sockets[0].getsockname()[1]
    else:
        if sockets:
            return sockets
    for sock in sockets:
        sock.close()
    raise last_error


def _bind(family: int, address: tuple[object, ...], share_port: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # "::" is both families
        sock.bind(address)
        sock.listen(_BACKLOG)  # else another socket could be bound to the address too
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_path(path: str) -> socket.socket:
    """Replaces a socket that a previous server left behind, but none that is in use."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(OSError):
            if Path(path).is_socket() and not _is_in_use(path):
                Path(path).unlink()
        sock.bind(path)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_in_use(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_TIMEOUT_SECONDS)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
    return True


def _file_id(path: str) -> tuple[int, int] | None:
    """Returns the device and inode of a file; None when it does not exist."""
    try:
        status = Path(path).lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
