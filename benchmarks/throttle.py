"""Throttling TCP proxy on loopback: a link of limited rate, towards the trainer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, repeat

_PIECE_BYTES = 1 << 14
_BUFFER_BYTES = 1 << 16


@contextmanager
def throttled(address: str, bytes_per_second: float | Sequence[float]) -> Iterator[str]:
    """Yields the address of a proxy that limits the rate of what the server sends: in total, or for
    each connection, which get several rates in turn."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # A link holds little: what it does not pass on must fill the sender's own buffers.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        if isinstance(bytes_per_second, Sequence):
            links = map(_Link, cycle(bytes_per_second))
        else:
            links = repeat(_Link(bytes_per_second))
        thread = threading.Thread(target=_accept, args=(listener, address, links), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


class _Link:
    """A rate that connections share."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, size: int) -> None:
        """Returns when this number of bytes has passed."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
            free_at = self._free_at
        time.sleep(max(0.0, free_at - time.monotonic()))


def _accept(listener: socket.socket, address: str, links: Iterator[_Link]) -> None:
    host, _, port = address.rpartition(":")
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        server.connect((host, int(port)))
        for source, sink, limit in ((client, server, None), (server, client, next(links))):
            threading.Thread(target=_forward, args=(source, sink, limit), daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket, link: _Link | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_PIECE_BYTES):
            if link is not None:
                link.wait(len(data))
            sink.sendall(data)
    for item in (source, sink):
        with contextlib.suppress(OSError):
            item.shutdown(socket.SHUT_RDWR)
    source.close()
