"""The addresses that a server listens on."""

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
_RETRY_SECONDS = 0.1
"""After an accept that failed, as for want of file descriptors."""

_TRIES = 10
"""For a free port that is the same at all of a host's addresses."""

_PROBE_SECONDS = 1.0


class Listener:
    """Sockets that listen from the start; `start` takes connections from them."""

    def __init__(self, address: str, *, share_port: bool = False) -> None:
        """`address` is host:port or unix:path. Raises `OSError` when it cannot be bound."""
        self._path = address[5:] if address.startswith("unix:") else None
        self.port = 0
        """The one that was bound; 0 for a Unix socket."""
        if self._path is not None:
            self._sockets = [_bind_path(self._path)]
            self._place = _place(self._path)
        else:
            host, _, port = address.rpartition(":")
            self._sockets = _bind_all(host.strip("[]"), int(port), share_port)
            self.port = self._sockets[0].getsockname()[1]
        self._closed = False
        self._threads: list[threading.Thread] = []

    def start(self, take: Callable[[socket.socket, str], None]) -> None:
        """Calls `take` with each connection and its peer's name, from a thread of its own."""
        for one in self._sockets:
            thread = threading.Thread(
                target=self._accept, args=(one, take), name="infeed-listen", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Takes no more connections. May be called again."""
        self._closed = True
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()
        if self._path is not None and _place(self._path) == self._place:
            with contextlib.suppress(OSError):
                Path(self._path).unlink()
            self._path = None

    def _accept(self, one: socket.socket, take: Callable[[socket.socket, str], None]) -> None:
        while not self._closed:
            try:
                connection, peer = one.accept()
            except OSError as error:
                if not self._closed:
                    log.warning("a connection could not be taken: %s", error)
                    time.sleep(_RETRY_SECONDS)
                continue
            try:
                take(connection, _name(peer))
            except Exception:  # the next one must be taken all the same
                log.exception("a connection could not be taken")
                connection.close()


def _name(peer: Any) -> str:
    if not isinstance(peer, tuple):
        return "unix"
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_all(host: str, port: int, share_port: bool) -> list[socket.socket]:
    """A socket for each address of the host, all with one port."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places = list(dict.fromkeys((family, where) for family, _, _, _, where in found))
    for _ in range(_TRIES if port == 0 else 1):
        # A port that is free at one address may be taken at another.
        try:
            return _bind_each(places, port, share_port)
        except OSError as error:
            last = error
            if error.errno != errno.EADDRINUSE:
                break
    raise last


def _bind_each(
    places: Sequence[tuple[socket.AddressFamily, Any]], port: int, share_port: bool
) -> list[socket.socket]:
    """Leaves out addresses that this machine has not, unless it has none of them."""
    sockets: list[socket.socket] = []
    last = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for family, where in places:
        try:
            sockets.append(_bind(family, (where[0], port, *where[2:]), share_port))
        except OSError as error:
            last = error
            if error.errno == errno.EADDRINUSE:
                break
        else:
            port = sockets[0].getsockname()[1]
    else:
        if sockets:
            return sockets
    for one in sockets:
        one.close()
    raise last


def _bind(family: int, where: tuple[object, ...], share_port: bool) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        one.bind(where)
        one.listen(_BACKLOG)  # else another socket could be bound there too
    except BaseException:
        one.close()
        raise
    return one


def _bind_path(path: str) -> socket.socket:
    """Takes the place of a socket that a server before has left behind, not of one that is used."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(OSError):
            if Path(path).is_socket() and not _is_used(path):
                Path(path).unlink()
        one.bind(path)
        one.listen(_BACKLOG)
    except BaseException:
        one.close()
        raise
    return one


def _is_used(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
    return True


def _place(path: str) -> tuple[int, int] | None:
    """What tells a file from another one that has taken its path."""
    try:
        found = Path(path).lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
