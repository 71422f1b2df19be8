"""Delaying TCP proxy on loopback: each byte arrives later by a fixed time, at any throughput.

    python -m benchmarks.delay HOST:PORT MILLISECONDS

Prints `ready PORT`, and ends with its standard input. Connections to that port are forwarded to
HOST:PORT, delayed in each direction. Bytes stay in order, and any number of them can be in flight.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

_MAX_CHUNK_BYTES = 1 << 20
"""Bytes read at a time: smaller chunks take more processor time."""

_SOCKET_BYTES = 4 << 20
"""Bytes that a socket holds while the proxy is busy: fewer would limit the throughput."""

_CONNECT_TIMEOUT_SECONDS = 5.0
"""Seconds to connect to the server, after which the trainer's connection is closed."""

Chunks = SimpleQueue[tuple[float, bytes]]
"""When a chunk is due, in monotonic seconds, and its bytes; no bytes mark the end."""


def _serve(listener: socket.socket, address: str, delay: float) -> None:
    """Forwards connections to an address, with seconds of delay in each direction."""
    while True:
        client, _ = listener.accept()
        _start(_forward, client, address, delay)


def _forward(client: socket.socket, address: str, delay: float) -> None:
    with client, contextlib.suppress(OSError), _connected(address) as server:
        threads = []
        for source, sink in ((client, server), (server, client)):
            _set_up(source)
            chunks: Chunks = SimpleQueue()
            threads += [_start(_read, source, chunks, delay), _start(_write, sink, chunks)]
        for thread in threads:
            thread.join()


def _read(source: socket.socket, chunks: Chunks, delay: float) -> None:
    """Reads up to the end, or to a reset, which also ends the other side."""
    data = b"-"
    while data:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(_MAX_CHUNK_BYTES)
        chunks.put((time.monotonic() + delay, data))


def _write(sink: socket.socket, chunks: Chunks) -> None:
    """Writes each chunk when it is due; an empty one ends the stream."""
    data = b"-"
    while data:
        due, data = chunks.get()
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            if data:
                sink.sendall(data)
            else:
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)  # the thread that reads from it ends, too
            return


def _start(function: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def _set_up(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _connected(address: str) -> socket.socket:
    """Connects to a server. Raises `OSError`."""
    host, _, port = address.rpartition(":")
    server = socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_SECONDS)
    server.settimeout(None)
    return server


def main() -> None:
    address, milliseconds = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    _set_up(listener)
    print("ready", listener.getsockname()[1], flush=True)
    _start(_serve, listener, address, float(milliseconds) / 1000)
    sys.stdin.read()


if __name__ == "__main__":
    main()
