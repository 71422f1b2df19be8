"""A longer way on loopback: every byte arrives a fixed time later, however many are under way.

    python -m benchmarks.delay HOST:PORT MILLISECONDS

Prints `ready PORT`; what connects there reaches HOST:PORT, with that delay in each direction. The
bytes wait in pipes, into which the kernel moves the pages of a socket and out of which it moves
them into the next (`splice`): they are never copied, so the proxy takes little of the cores that
it shares with the two sides.
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

_TICK = 0.0001
"""Seconds between two looks at the sockets while bytes flow: fewer and larger parcels. A byte may
come that much late, never early."""

_PIPE_BYTES = 1 << 20
_PIPES = 256
"""Together 256 MiB of pages for what is under way: the proxy must not be the window."""

_SOCKET_BYTES = 4 << 20
_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class Pipe:
    """Holds the pages of one parcel."""

    def __init__(self) -> None:
        self.exit, self.entry = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Refused without privileges once the user's pipes hold 64 MiB; a small one works too.
        with contextlib.suppress(PermissionError):
            fcntl.fcntl(self.entry, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def close(self) -> None:
        os.close(self.exit)
        os.close(self.entry)


class Pool:
    """The empty pipes."""

    def __init__(self) -> None:
        self._free: list[Pipe] = []
        self._made = 0

    def take(self) -> Pipe | None:
        """An empty pipe; None while all are under way."""
        if self._free:
            return self._free.pop()
        if self._made == _PIPES:
            return None
        self._made += 1
        return Pipe()

    def give(self, pipe: Pipe, *, is_empty: bool) -> None:
        if is_empty:
            self._free.append(pipe)
        else:
            self._made -= 1
            pipe.close()


class Lane:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay: float) -> None:
        self.source, self.sink = source, sink
        self._delay = delay
        self._parcels: deque[tuple[float, Pipe | None, int]] = deque()
        """When each is due, its pages (None: the end of the stream) and its bytes."""
        self.is_ended = False
        self.is_blocked = False

    def fill(self, pool: Pool, now: float) -> None:
        """Takes what the source has."""
        while not self.is_ended and (pipe := pool.take()) is not None:
            try:
                count = os.splice(self.source.fileno(), pipe.entry, 64 << 20, flags=_FLAGS)
            except BlockingIOError:
                pool.give(pipe, is_empty=True)
                return
            if count:
                self._parcels.append((now + self._delay, pipe, count))
            else:
                pool.give(pipe, is_empty=True)
                self._parcels.append((now + self._delay, None, 0))
                self.is_ended = True

    def drain(self, pool: Pool, now: float) -> None:
        """Hands over what is due, as far as the sink takes it."""
        self.is_blocked = False
        while self._parcels and self._parcels[0][0] <= now:
            due, pipe, size = self._parcels[0]
            if pipe is None:
                self._parcels.popleft()
                self.sink.shutdown(socket.SHUT_WR)
                continue
            try:
                size -= os.splice(pipe.exit, self.sink.fileno(), size, flags=_FLAGS)
            except BlockingIOError:
                self.is_blocked = True
                return
            if size:
                self._parcels[0] = (due, pipe, size)
            else:
                self._parcels.popleft()
                pool.give(pipe, is_empty=True)

    @property
    def is_over(self) -> bool:
        return self.is_ended and not self._parcels

    @property
    def due(self) -> float | None:
        """When there is something to hand over; None while nothing waits, or the sink is full."""
        return self._parcels[0][0] if self._parcels and not self.is_blocked else None

    def drop(self, pool: Pool) -> None:
        for _, pipe, _ in self._parcels:
            if pipe is not None:
                pool.give(pipe, is_empty=False)


class Proxy:
    """All connections, in one thread."""

    def __init__(self, target: tuple[str, int], delay: float) -> None:
        self._target, self._delay = target, delay
        self._pool = Pool()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        _enlarge(self._listener)
        self.port = int(self._listener.getsockname()[1])
        self._epoll = select.epoll()
        self._epoll.register(self._listener, _READ)
        self._connections: list[tuple[Lane, Lane]] = []
        self._masks: dict[socket.socket, int] = {}

    def run(self) -> None:
        while True:
            events = self._epoll.poll(self._patience())
            # What comes within a tick travels together.
            time.sleep(_TICK)
            if any(descriptor == self._listener.fileno() for descriptor, _ in events):
                self._accept()
            for lanes in list(self._connections):
                self._move(lanes)

    def _patience(self) -> float | None:
        dues = [lane.due for lanes in self._connections for lane in lanes]
        soonest = min((due for due in dues if due is not None), default=None)
        # epoll rounds up to whole milliseconds; the tick behind it makes up for the lost half.
        return None if soonest is None else max(0.0, soonest - time.monotonic() - 0.001)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target, timeout=5)
        except OSError:
            near.close()
            return
        for end in (near, far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _enlarge(end)
            self._epoll.register(end, _READ)
            self._masks[end] = _READ
        self._connections.append((Lane(near, far, self._delay), Lane(far, near, self._delay)))

    def _move(self, lanes: tuple[Lane, Lane]) -> None:
        try:
            for lane in lanes:
                now = time.monotonic()
                lane.fill(self._pool, now)
                lane.drain(self._pool, now)
            is_over = all(lane.is_over for lane in lanes)
        except OSError:  # reset by one side: the other has to learn
            is_over = True
        if is_over:
            self._connections.remove(lanes)
            for lane in lanes:
                lane.drop(self._pool)
                del self._masks[lane.source]
                lane.source.close()
            return
        there, back = lanes
        self._watch(there.source, reads=not there.is_ended, writes=back.is_blocked)
        self._watch(back.source, reads=not back.is_ended, writes=there.is_blocked)

    def _watch(self, end: socket.socket, *, reads: bool, writes: bool) -> None:
        mask = _READ * reads | _WRITE * writes
        if mask != self._masks[end]:
            self._epoll.modify(end, mask)
            self._masks[end] = mask


def _enlarge(end: socket.socket) -> None:
    """Buffers that hold what comes in a tick."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)


def main() -> None:
    host, port = sys.argv[1].rsplit(":", 1)
    proxy = Proxy((host, int(port)), float(sys.argv[2]) / 1000)
    print("ready", proxy.port, flush=True)
    proxy.run()


if __name__ == "__main__":
    main()
