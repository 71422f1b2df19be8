"""A peer that floods a server with cheap frames, in a process of its own.

    python -m tests.stress.floods.attacker ADDRESS KIND SECONDS

The kinds with `in a call` open a stream of batches first. A connection that the server ends is
opened again.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable

from tests.stress.fuzz import frames

from infeed.v1 import stream_pb2

_PREFACE = frames.PREFACE + frames.settings(initial_window=1 << 20)
_BYTES_AT_ONCE = 1 << 20
_RECONNECT_PAUSE_SECONDS = 0.05


def _headers(stream: int, flags: int = frames.END_HEADERS) -> bytes:
    path = "/infeed.v1.FeedService/StreamBatches"
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "s")]
    return frames.headers(stream, [*fields, ("content-type", "application/grpc")], flags)


def _call() -> bytes:
    event = stream_pb2.StreamOpen(pipeline="numbers")
    message = stream_pb2.StreamBatchesRequest(open=event).SerializeToString()
    return _headers(1) + frames.frame(frames.DATA, 0, 1, frames.message(message))


CPU_ONLY = "no flood"
"""A process that only computes, for what an attacker's own use of the machine costs."""

KINDS: dict[str, bytes] = {
    CPU_ONLY: b"",
    "PING": frames.frame(frames.PING, 0, 0, bytes(8)),
    "SETTINGS": frames.frame(frames.SETTINGS, 0, 0),
    "PRIORITY": frames.frame(frames.PRIORITY, 0, 7, bytes(5)),
    "WINDOW_UPDATE": frames.window(0, 1),
    "empty DATA": frames.frame(frames.DATA, 0, 1),
    "unknown frames": frames.frame(0xBE, 0, 0),
    "RST_STREAM": frames.reset(1),
    "empty CONTINUATION": b"",
    "requests and resets": b"",
}


def _repeated(kind: str) -> bytes:
    """Returns what is sent again and again on one connection."""
    streams = range(3, 6001, 2)
    if kind == "requests and resets":
        return b"".join(_headers(stream) + frames.reset(stream) for stream in streams)
    if kind == "empty CONTINUATION":
        return b"".join(_split_headers(stream) for stream in streams[:200])
    return KINDS[kind] * (_BYTES_AT_ONCE // len(KINDS[kind]))


def _split_headers(stream: int) -> bytes:
    empty = frames.frame(frames.CONTINUATION, 0, stream) * 60
    return _headers(stream, 0) + empty + frames.frame(frames.CONTINUATION, 4, stream)


def flood(address: str, kind: str, stopped: Callable[[], bool], *, in_call: bool) -> int:
    """Sends until `stopped`; returns the number of connections."""
    host, _, port = address.rpartition(":")
    connections = 0
    data = _repeated(kind)
    while not stopped():
        connections += 1
        with socket.create_connection((host, int(port)), 10) as peer:
            peer.settimeout(0.5)
            try:
                needs_stream = in_call or KINDS[kind][3:4] in (b"\0", b"\3")
                peer.sendall(_PREFACE + (_call() if needs_stream else b""))
                if in_call:
                    peer.recv(1 << 16)
                while not stopped():
                    _send(peer, data, stopped)
            except OSError:
                time.sleep(_RECONNECT_PAUSE_SECONDS)
    return connections


def _send(peer: socket.socket, data: bytes, stopped: Callable[[], bool]) -> None:
    view = memoryview(data)
    while view and not stopped():
        try:
            view = view[peer.send(view) :]
        except TimeoutError:  # the server does not read: whole frames must follow
            continue


def main(address: str, name: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    kind, _, suffix = name.partition(" in a ")
    if kind == CPU_ONLY:
        while time.monotonic() < end:
            sum(range(10_000))
        print(0)
        return
    print(flood(address, kind, lambda: time.monotonic() >= end, in_call=bool(suffix)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
