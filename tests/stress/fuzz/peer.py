"""A connection to the server, driven frame by frame: it sends whatever it is told to, and takes
apart what it is sent. Nothing here waits."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque

import hpack
from tests.stress.fuzz import frames

_RECEIVE_BYTES = 1 << 18
_FRAME_BYTES = 1 << 14
_CREDIT_BYTES = 1 << 28

_KINDS = {frames.DATA, frames.HEADERS, frames.RST, frames.SETTINGS, frames.PING, frames.GOAWAY}
_KINDS |= {frames.WINDOW, frames.CONTINUATION}
"""What a server may send."""


class Answer:
    """What has come on one stream."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.data = bytearray()
        self.ended = False
        self.reset: int | None = None

    @property
    def status(self) -> str:
        """The code of gRPC or, where there is none, of HTTP; empty without an answer."""
        for told in (self.trailers, self.headers):
            if "grpc-status" in told:
                return told["grpc-status"]
        http = self.headers.get(":status", "")
        return f"HTTP {http}" if http and self.ended else ""

    @property
    def message(self) -> str:
        return self.trailers.get("grpc-message", self.headers.get("grpc-message", ""))


class Peer:
    """The client's side of one connection. Raises `ValueError` for what no server may send."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None
        self.over = False
        """Whether the server has closed the connection."""
        self.half_closed = False
        self.reading = True
        self._in = bytearray()
        self._out = bytearray()
        self._fin = False
        self._decoder = hpack.Decoder()
        self._headers: tuple[int, int, bytearray] | None = None
        self._waiting: dict[int, deque[tuple[bytes, bool]]] = {}
        self._window = self._initial = (1 << 16) - 1
        self._windows: dict[int, int] = {}
        self._credit = 0

    def fileno(self) -> int:
        return self.socket.fileno()

    # To the server.

    def greet(self, *, initial_window: int = frames.MOST) -> None:
        self.raw(frames.PREFACE + frames.settings(initial_window=initial_window))
        self.raw(frames.window(0, frames.MOST - (1 << 16)))

    def raw(self, data: bytes) -> None:
        self._out += data

    def finish(self) -> None:
        """Nothing more will be said once all is sent."""
        self._fin = True

    def expect(self, stream: int) -> Answer:
        """What comes on this stream from now on."""
        answer = self.answers[stream] = Answer()
        self._windows[stream] = self._initial
        return answer

    def data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """DATA frames, one if it fits, as soon as the windows take them."""
        waiting = self._waiting.setdefault(stream, deque())
        parts = [data[at : at + _FRAME_BYTES] for at in range(0, max(1, len(data)), _FRAME_BYTES)]
        waiting.extend((part, False) for part in parts[:-1])
        waiting.append((parts[-1], end))
        self._release()

    def forget(self, stream: int) -> None:
        """Nothing more is sent on the stream, and what comes is dropped."""
        for kept in (self.answers, self._waiting, self._windows):
            kept.pop(stream, None)

    def abort(self) -> None:
        """Ends the connection with a reset of TCP."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.over = True
        self.socket.close()

    @property
    def wants_to_send(self) -> bool:
        return bool(self._out) or (self._fin and not self.half_closed)

    def send(self) -> None:
        try:
            while self._out:
                del self._out[: self.socket.send(memoryview(self._out)[: 1 << 18].tobytes())]
            if self._fin and not self.half_closed:
                self.half_closed = True
                self.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()
            self.half_closed = True  # what the server has said before is still to be read

    # From the server.

    def receive(self) -> None:
        try:
            while data := self.socket.recv(_RECEIVE_BYTES):
                self._in += data
                self._take_in()
                if len(data) < _RECEIVE_BYTES:
                    return
            self.over = True
        except BlockingIOError:
            pass
        except OSError:
            self.over = True

    def _take_in(self) -> None:
        at = 0
        while len(self._in) - at >= 9:
            size = int.from_bytes(self._in[at : at + 3], "big")
            if len(self._in) - at < 9 + size:
                break
            kind, flags = self._in[at + 3], self._in[at + 4]
            stream = int.from_bytes(self._in[at + 5 : at + 9], "big")
            body = bytes(self._in[at + 9 : at + 9 + size])
            at += 9 + size
            self._on(kind, flags, stream, body)
        del self._in[:at]
        self._release()

    def _on(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind not in _KINDS or len(body) > 1 << 24 or stream >> 31:
            raise ValueError(f"the server sent a frame of kind {kind} on stream {stream}")
        if kind == frames.DATA:
            self._on_data(flags, stream, body)
        elif kind in {frames.HEADERS, frames.CONTINUATION}:
            self._on_headers(kind, flags, stream, body)
        elif kind == frames.SETTINGS and not flags & frames.ACK:
            self._on_settings(body)
        elif kind == frames.WINDOW:
            step = int.from_bytes(body, "big")
            if stream:
                if stream in self._windows:
                    self._windows[stream] += step
            else:
                self._window += step
        elif kind == frames.RST:
            if answer := self.answers.get(stream):
                answer.reset = int.from_bytes(body, "big")
                self._waiting.pop(stream, None)
        elif kind == frames.GOAWAY:
            self.goaway = int.from_bytes(body[4:8], "big")
        elif kind == frames.PING and not flags & frames.ACK:
            self.raw(frames.frame(frames.PING, frames.ACK, 0, body))

    def _on_data(self, flags: int, stream: int, body: bytes) -> None:
        self._credit += len(body)
        if self._credit > _CREDIT_BYTES:
            self.raw(frames.window(0, self._credit))
            self._credit = 0
        if answer := self.answers.get(stream):
            answer.data += body
            answer.ended |= bool(flags & frames.END_STREAM)

    def _on_headers(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if (self._headers is None) != (kind == frames.HEADERS):
            raise ValueError("the server's headers are broken off")
        if self._headers is None:
            self._headers = (stream, flags, bytearray())
        stream, first, whole = self._headers
        whole += body
        if not flags & frames.END_HEADERS:
            return
        self._headers = None
        # Decoded for streams that are forgotten too: the table is the connection's.
        fields = {
            str(name, "latin-1"): str(value, "latin-1")
            for name, value in self._decoder.decode(bytes(whole), raw=True)
        }
        if answer := self.answers.get(stream):
            if answer.headers:
                answer.trailers = fields
            else:
                answer.headers = fields
            answer.ended |= bool(first & frames.END_STREAM)

    def _on_settings(self, body: bytes) -> None:
        for at in range(0, len(body), 6):
            key, value = struct.unpack_from(">HI", body, at)
            if key == frames.INITIAL_WINDOW:
                for stream in self._windows:
                    self._windows[stream] += value - self._initial
                self._initial = value
        self.raw(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _release(self) -> None:
        """Sends the data that the windows take."""
        for stream, waiting in list(self._waiting.items()):
            while waiting:
                data, end = waiting[0]
                if len(data) > min(self._window, self._windows.get(stream, 0)):
                    break
                waiting.popleft()
                self._window -= len(data)
                self._windows[stream] -= len(data)
                self.raw(frames.frame(frames.DATA, frames.END_STREAM * end, stream, data))
            if not waiting:
                del self._waiting[stream]
