"""The TCP sockets of this process by port, including those that TensorFlow opened."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


def process_sockets(port: int, *, listening: bool) -> Iterator[socket.socket]:
    """Yields the TCP sockets of this process with that local port: listeners, or connections.

    Each is a duplicate, open while it is yielded. Yields none on a system without /proc.
    """
    if not _DESCRIPTORS.is_dir():
        return
    for entry in _DESCRIPTORS.iterdir():
        # A duplicate, since other threads close and reuse descriptors meanwhile.
        with suppress(OSError), _duplicate(int(entry.name)) as duplicate:
            if _is_tcp(duplicate) and duplicate.getsockname()[1] == port:
                listens = duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if bool(listens) == listening:
                    yield duplicate


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
