"""The TCP sockets that this process has, also those that TensorFlow opened: by their port."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True)
class Owned:
    """A socket of this process, held by a descriptor of its own while `owned` yields it."""

    socket: socket.socket
    inode: int
    """Of the socket, for as long as it lives; the kernel may give it to a later one."""

    @property
    def listens(self) -> bool:
        return bool(self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def owned(port: int) -> Iterator[Owned]:
    """Every TCP socket of this process whose own end has that port: who listens, and what was
    accepted. None where the system does not tell (no /proc)."""
    if not _DESCRIPTORS.is_dir():
        return
    for entry in _DESCRIPTORS.iterdir():
        # Others close descriptors meanwhile: what a copy shows is what is looked at.
        with suppress(OSError), _copy(int(entry.name)) as copy:
            if _is_tcp(copy) and copy.getsockname()[1] == port:
                yield Owned(copy, os.fstat(copy.fileno()).st_ino)


def _copy(descriptor: int) -> socket.socket:
    """Raises `OSError` for what is no socket."""
    number = os.dup(descriptor)
    try:
        return socket.socket(fileno=number)
    except OSError:
        os.close(number)
        raise


def _is_tcp(found: socket.socket) -> bool:
    return found.family in (socket.AF_INET, socket.AF_INET6) and (found.type == socket.SOCK_STREAM)
