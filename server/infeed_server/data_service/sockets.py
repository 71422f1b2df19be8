"""The TCP sockets of this process by port, including those that TensorFlow opened."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True)
class ProcessSocket:
    """A socket of this process: a duplicate, open while `process_sockets` yields it."""

    socket: socket.socket
    inode: int
    """Identifies the socket while it is open; the kernel may reuse it afterwards."""

    @property
    def is_listening(self) -> bool:
        return bool(self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def process_sockets(port: int) -> Iterator[ProcessSocket]:
    """Yields the TCP sockets of this process with that local port: listeners and connections.

    Yields none on a system without /proc.
    """
    if not _DESCRIPTORS.is_dir():
        return
    for entry in _DESCRIPTORS.iterdir():
        # A duplicate, since other threads close and reuse descriptors meanwhile.
        with suppress(OSError), _duplicate(int(entry.name)) as duplicate:
            if _is_tcp(duplicate) and duplicate.getsockname()[1] == port:
                yield ProcessSocket(duplicate, os.fstat(duplicate.fileno()).st_ino)


def _duplicate(descriptor: int) -> socket.socket:
    """Duplicates a descriptor. Raises `OSError` when it is not a socket."""
    number = os.dup(descriptor)
    try:
        return socket.socket(fileno=number)
    except OSError:
        os.close(number)
        raise


def _is_tcp(sock: socket.socket) -> bool:
    return sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
