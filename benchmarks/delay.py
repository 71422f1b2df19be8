"""Delaying TCP proxy on loopback: each byte arrives a fixed time later, at any throughput.

    python -m benchmarks.delay HOST:PORT MILLISECONDS

Prints `ready PORT`. Connections to that port are forwarded to HOST:PORT, delayed in each direction.
Delayed bytes are held in pipes: the kernel moves a socket's pages into a pipe and from there into
the other socket (`splice`). They are never copied, so the proxy uses little of the processor time
that it shares with the two sides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import sys
import time
from collections import deque

_POLL_INTERVAL_SECONDS = 0.0001
"""Time between two polls of the sockets while bytes flow, for fewer and larger chunks. A byte may
arrive late by this time, never early."""

_PIPE_BYTES = 1 << 20
_MAX_PIPES = 256
"""Together 256 MiB of delayed pages: the proxy must not limit the bytes in flight."""

_SOCKET_BYTES = 4 << 20
_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class Pipe:
    """Pages of one chunk."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Fails without privileges once the user's pipes hold 64 MiB; a smaller pipe also works.
        with contextlib.suppress(PermissionError):
            fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self.write_end)


class PipePool:
    """Reusable empty pipes, up to `_MAX_PIPES` in use."""

    def __init__(self) -> None:
        self._free: list[Pipe] = []
        self._open_count = 0

    def acquire(self) -> Pipe | None:
        """Returns an empty pipe; None while all are in use."""
        if self._free:
            return self._free.pop()
        if self._open_count == _MAX_PIPES:
            return None
        self._open_count += 1
        return Pipe()

    def release(self, pipe: Pipe, *, is_empty: bool) -> None:
        if is_empty:
            self._free.append(pipe)
        else:
            self._open_count -= 1
            pipe.close()


class Direction:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay: float) -> None:
        self.source, self.sink = source, sink
        self._delay = delay
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
                self._chunks.append((now + self._delay, pipe, count))
            else:
                pool.release(pipe, is_empty=True)
                self._chunks.append((now + self._delay, None, 0))
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

    def discard(self, pool: PipePool) -> None:
        for _, pipe, _ in self._chunks:
            if pipe is not None:
                pool.release(pipe, is_empty=False)


class Proxy:
    """Forwards all connections, in one thread."""

    def __init__(self, target: tuple[str, int], delay: float) -> None:
        self._target, self._delay = target, delay
        self._pool = PipePool()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        _set_buffer_sizes(self._listener)
        self.port = int(self._listener.getsockname()[1])
        self._epoll = select.epoll()
        self._epoll.register(self._listener, _READ)
        self._connections: list[tuple[Direction, Direction]] = []
        self._masks: dict[socket.socket, int] = {}

    def run(self) -> None:
        while True:
            events = self._epoll.poll(self._timeout())
            # Bytes that arrive within one interval form one chunk.
            time.sleep(_POLL_INTERVAL_SECONDS)
            if any(descriptor == self._listener.fileno() for descriptor, _ in events):
                self._accept()
            for connection in list(self._connections):
                self._forward(connection)

    def _timeout(self) -> float | None:
        times = [direction.due for pair in self._connections for direction in pair]
        earliest = min((due for due in times if due is not None), default=None)
        # epoll rounds up to whole milliseconds; the poll interval makes up for the early wake-up.
        return None if earliest is None else max(0.0, earliest - time.monotonic() - 0.001)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        for peer in (client, server):
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _set_buffer_sizes(peer)
            self._epoll.register(peer, _READ)
            self._masks[peer] = _READ
        self._connections.append(
            (Direction(client, server, self._delay), Direction(server, client, self._delay))
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
            self._connections.remove(connection)
            for direction in connection:
                direction.discard(self._pool)
                del self._masks[direction.source]
                direction.source.close()
            return
        upload, download = connection
        self._watch(upload.source, reads=not upload.has_ended, writes=download.is_blocked)
        self._watch(download.source, reads=not download.has_ended, writes=upload.is_blocked)

    def _watch(self, peer: socket.socket, *, reads: bool, writes: bool) -> None:
        mask = _READ * reads | _WRITE * writes
        if mask != self._masks[peer]:
            self._epoll.modify(peer, mask)
            self._masks[peer] = mask


def _set_buffer_sizes(connection: socket.socket) -> None:
    """Sets buffers that hold the bytes of one poll interval."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)


def main() -> None:
    host, port = sys.argv[1].rsplit(":", 1)
    proxy = Proxy((host, int(port)), float(sys.argv[2]) / 1000)
    print("ready", proxy.port, flush=True)
    proxy.run()


if __name__ == "__main__":
    main()
