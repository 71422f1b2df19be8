"""Delaying TCP proxy on loopback: each byte arrives some time later, at any throughput.

    python -m infeed.loadtest.delay HOST:PORT MILLISECONDS [JITTER_MILLISECONDS]

Prints `ready PORT`. Connections to that port are forwarded to HOST:PORT, delayed in each direction
by the first time plus a random one of up to the second. Bytes stay in order.

Delayed bytes are held in pipes: the kernel moves a socket's pages into a pipe and from there into
the other socket (`splice`). They are never copied, so the proxy uses little of the processor time
that it shares with the two sides.
"""

from __future__ import annotations

import os
import random
import select
import socket
import sys
import time
from collections import deque
from multiprocessing.connection import Connection

from infeed.http2.target import resolve
from infeed.loadtest.pipes import Pipe, PipePool

_POLL_INTERVAL_SECONDS = 0.0001
"""Time between two polls of the sockets while bytes flow, for fewer and larger chunks. A byte may
arrive late by this time, never early."""

_SOCKET_BYTES = 4 << 20
_CONNECT_TIMEOUT_SECONDS = 5.0

IS_SUPPORTED = hasattr(os, "splice") and hasattr(select, "epoll")
"""Whether this system has what the proxy needs: Linux has."""

if IS_SUPPORTED:
    _READ = select.EPOLLIN
    _WRITE = select.EPOLLOUT
    _FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class Direction:
    """One direction of a connection."""

    def __init__(
        self, source: socket.socket, sink: socket.socket, delay: float, jitter: float
    ) -> None:
        """`delay` and `jitter` are in seconds."""
        self.source, self.sink = source, sink
        self._delay, self._jitter = delay, jitter
        self._last_due = 0.0
        self._chunks: deque[tuple[float, Pipe | None, int]] = deque()
        """Due time, pages (None: end of stream) and byte count of each chunk."""
        self.has_ended = False
        self.is_blocked = False

    def fill(self, pool: PipePool, now: float) -> None:
        """Reads the available bytes of the source."""
        while not self.has_ended and (pipe := pool.acquire()) is not None:
            try:
                count = os.splice(self.source.fileno(), pipe.write_end, 64 << 20, flags=_FLAGS)
            except BlockingIOError:
                pool.release(pipe, is_empty=True)
                return
            if count:
                self._chunks.append((self._due(now), pipe, count))
            else:
                pool.release(pipe, is_empty=True)
                self._chunks.append((self._due(now), None, 0))
                self.has_ended = True

    def drain(self, pool: PipePool, now: float) -> None:
        """Writes the chunks that are due, until the sink blocks."""
        self.is_blocked = False
        while self._chunks and self._chunks[0][0] <= now:
            due, pipe, size = self._chunks[0]
            if pipe is None:
                self._chunks.popleft()
                self.sink.shutdown(socket.SHUT_WR)
                continue
            try:
                size -= os.splice(pipe.read_end, self.sink.fileno(), size, flags=_FLAGS)
            except BlockingIOError:
                self.is_blocked = True
                return
            if size:
                self._chunks[0] = (due, pipe, size)
            else:
                self._chunks.popleft()
                pool.release(pipe, is_empty=True)

    @property
    def is_finished(self) -> bool:
        return self.has_ended and not self._chunks

    @property
    def due(self) -> float | None:
        """Time of the next write; None if nothing is pending or the sink is blocked."""
        return self._chunks[0][0] if self._chunks and not self.is_blocked else None

    def _due(self, now: float) -> float:
        """Returns when bytes that arrive now may leave: never before earlier ones."""
        due = now + self._delay + random.uniform(0.0, self._jitter)  # noqa: S311
        self._last_due = max(self._last_due, due)
        return self._last_due

    def discard(self, pool: PipePool) -> None:
        for _, pipe, _ in self._chunks:
            if pipe is not None:
                pool.release(pipe, is_empty=False)


class Proxy:
    """Forwards all connections to one address, in one thread."""

    def __init__(self, address: str, delay: float, jitter: float = 0.0) -> None:
        """`delay` and `jitter` are in seconds, for each direction."""
        self._address, self._delay, self._jitter = address, delay, jitter
        self._pool = PipePool()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        _set_buffer_sizes(self._listener)
        self.port = int(self._listener.getsockname()[1])
        self._epoll = select.epoll()
        self._epoll.register(self._listener, _READ)
        self._connections: list[tuple[Direction, Direction]] = []
        self._masks: dict[socket.socket, int] = {}

    def run(self, parent: Connection | None = None) -> None:
        """Forwards until the other end of `parent` is closed, as it is when its process ends."""
        if parent is not None:
            self._epoll.register(parent, _READ)
        while True:
            events = self._epoll.poll(self._timeout())
            if parent is not None and any(each == parent.fileno() for each, _ in events):
                return
            # Bytes that arrive within one interval form one chunk.
            time.sleep(_POLL_INTERVAL_SECONDS)
            if any(descriptor == self._listener.fileno() for descriptor, _ in events):
                self._accept()
            for connection in list(self._connections):
                self._forward(connection)

    def close(self) -> None:
        """Closes all connections, and the pipes with their bytes."""
        for connection in list(self._connections):
            self._end(connection)
        self._pool.close()
        self._epoll.close()
        self._listener.close()

    def _timeout(self) -> float | None:
        times = [direction.due for pair in self._connections for direction in pair]
        earliest = min((due for due in times if due is not None), default=None)
        # epoll rounds up to whole milliseconds; the poll interval makes up for the early wake-up.
        return None if earliest is None else max(0.0, earliest - time.monotonic() - 0.001)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = _connect(self._address)
        except OSError:
            client.close()
            return
        for peer in (client, server):
            peer.setblocking(False)
            if peer.family != socket.AF_UNIX:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _set_buffer_sizes(peer)
            self._epoll.register(peer, _READ)
            self._masks[peer] = _READ
        self._connections.append(
            (
                Direction(client, server, self._delay, self._jitter),
                Direction(server, client, self._delay, self._jitter),
            )
        )

    def _forward(self, connection: tuple[Direction, Direction]) -> None:
        try:
            for direction in connection:
                now = time.monotonic()
                direction.fill(self._pool, now)
                direction.drain(self._pool, now)
            is_finished = all(direction.is_finished for direction in connection)
        except OSError:  # One side reset the connection: close the other side too.
            is_finished = True
        if is_finished:
            self._end(connection)
            return
        upload, download = connection
        self._watch(upload.source, reads=not upload.has_ended, writes=download.is_blocked)
        self._watch(download.source, reads=not download.has_ended, writes=upload.is_blocked)

    def _end(self, connection: tuple[Direction, Direction]) -> None:
        self._connections.remove(connection)
        for direction in connection:
            direction.discard(self._pool)
            del self._masks[direction.source]
            direction.source.close()

    def _watch(self, peer: socket.socket, *, reads: bool, writes: bool) -> None:
        mask = _READ * reads | _WRITE * writes
        if mask != self._masks[peer]:
            self._epoll.modify(peer, mask)
            self._masks[peer] = mask


def _set_buffer_sizes(connection: socket.socket) -> None:
    """Sets buffers that hold the bytes of one poll interval."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)


def _connect(address: str) -> socket.socket:
    """Connects to the first address that accepts. Raises `OSError`."""
    problem = OSError(f"{address} has no address")
    for family, place in resolve(address):
        server = socket.socket(family)
        server.settimeout(_CONNECT_TIMEOUT_SECONDS)
        try:
            server.connect(place)
        except OSError as error:
            server.close()
            problem = error
        else:
            return server
    raise problem


def serve(address: str, delay: float, jitter: float, parent: Connection) -> None:
    """Runs a proxy in a process of its own; sends its port to `parent`."""
    proxy = Proxy(address, delay, jitter)
    try:
        parent.send(proxy.port)
        proxy.run(parent)
    finally:
        proxy.close()
        parent.close()


def main() -> None:
    address, delay, jitter = [*sys.argv[1:], "0"][:3]
    proxy = Proxy(address, float(delay) / 1000, float(jitter) / 1000)
    print("ready", proxy.port, flush=True)  # noqa: T201
    proxy.run()


if __name__ == "__main__":
    main()
