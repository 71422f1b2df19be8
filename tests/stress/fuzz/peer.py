"""Non-blocking HTTP/2 client that sends given frames and parses received ones."""

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
"""Frame types that a server may send."""


class Response:
    """Received data of one stream."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.data = bytearray()
        self.ended = False
        self.reset: int | None = None

    @property
    def status(self) -> str:
        """The gRPC status, else the HTTP status; empty without a response."""
        for fields in (self.trailers, self.headers):
            if "grpc-status" in fields:
                return fields["grpc-status"]
        http = self.headers.get(":status", "")
        return f"HTTP {http}" if http and self.ended else ""

    @property
    def message(self) -> str:
        return self.trailers.get("grpc-message", self.headers.get("grpc-message", ""))


class Peer:
    """Client's side of one connection. Raises `ValueError` for invalid frames of the server."""

    def __init__(self, address: str, source: str | None = None) -> None:
        """`source` is the host that connects; None: that of the system's choice."""
        host, port = address.rsplit(":", 1)
        origin = None if source is None else (source, 0)
        self.socket = socket.create_connection((host, int(port)), timeout=20, source_address=origin)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.responses: dict[int, Response] = {}
        self.goaway: int | None = None
        self.is_closed = False
        """Whether the server has closed the connection."""
        self.half_closed = False
        self._in = bytearray()
        self._out = bytearray()
        self._is_finishing = False
        self._decoder = hpack.Decoder()
        self._headers: tuple[int, int, bytearray] | None = None
        self._waiting: dict[int, deque[tuple[bytes, bool]]] = {}
        self._window = self._initial = (1 << 16) - 1
        self._windows: dict[int, int] = {}
        self._credit = 0

    def fileno(self) -> int:
        return self.socket.fileno()

    # To the server.

    def send_preface(self, *, initial_window: int = frames.MAX_WINDOW) -> None:
        self.raw(frames.PREFACE + frames.settings(initial_window=initial_window))
        self.raw(frames.window(0, frames.MAX_WINDOW - (1 << 16)))

    def raw(self, data: bytes) -> None:
        self._out += data

    def finish(self) -> None:
        """Closes the sending side once all data is sent."""
        self._is_finishing = True

    def expect(self, stream: int) -> Response:
        """Starts recording a stream, and returns its response."""
        response = self.responses[stream] = Response()
        self._windows[stream] = self._initial
        return response

    def data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Sends DATA frames, one if it fits, as soon as the windows allow."""
        waiting = self._waiting.setdefault(stream, deque())
        starts = range(0, max(1, len(data)), _FRAME_BYTES)
        parts = [data[start : start + _FRAME_BYTES] for start in starts]
        waiting.extend((part, False) for part in parts[:-1])
        waiting.append((parts[-1], end))
        self._send_waiting()

    def forget(self, stream: int) -> None:
        """Discards the stream's unsent data, and data that is received later."""
        for streams in (self.responses, self._waiting, self._windows):
            streams.pop(stream, None)

    def abort(self) -> None:
        """Closes the connection with a TCP reset."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.is_closed = True
        self.socket.close()

    @property
    def wants_to_send(self) -> bool:
        return bool(self._out) or (self._is_finishing and not self.half_closed)

    def send(self) -> None:
        try:
            while self._out:
                del self._out[: self.socket.send(memoryview(self._out)[: 1 << 18].tobytes())]
            if self._is_finishing and not self.half_closed:
                self.half_closed = True
                self.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()
            self.half_closed = True  # received data is still to be read

    # From the server.

    def receive(self) -> None:
        try:
            while data := self.socket.recv(_RECEIVE_BYTES):
                self._in += data
                self._parse_frames()
                if len(data) < _RECEIVE_BYTES:
                    return
            self.is_closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.is_closed = True

    def _parse_frames(self) -> None:
        offset = 0
        while len(self._in) - offset >= 9:
            size = int.from_bytes(self._in[offset : offset + 3], "big")
            if len(self._in) - offset < 9 + size:
                break
            kind, flags = self._in[offset + 3], self._in[offset + 4]
            stream = int.from_bytes(self._in[offset + 5 : offset + 9], "big")
            body = bytes(self._in[offset + 9 : offset + 9 + size])
            offset += 9 + size
            self._on_frame(kind, flags, stream, body)
        del self._in[:offset]
        self._send_waiting()

    def _on_frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
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
            if response := self.responses.get(stream):
                response.reset = int.from_bytes(body, "big")
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
        if response := self.responses.get(stream):
            response.data += body
            response.ended |= bool(flags & frames.END_STREAM)

    def _on_headers(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if (self._headers is None) != (kind == frames.HEADERS):
            raise ValueError("the server sent an incomplete header block")
        if self._headers is None:
            self._headers = (stream, flags, bytearray())
        stream, first_flags, block = self._headers
        block += body
        if not flags & frames.END_HEADERS:
            return
        self._headers = None
        # Forgotten streams' headers are decoded, too, to keep the connection's HPACK table.
        fields = {
            str(name, "latin-1"): str(value, "latin-1")
            for name, value in self._decoder.decode(bytes(block), raw=True)
        }
        if response := self.responses.get(stream):
            if response.headers:
                response.trailers = fields
            else:
                response.headers = fields
            response.ended |= bool(first_flags & frames.END_STREAM)

    def _on_settings(self, body: bytes) -> None:
        for offset in range(0, len(body), 6):
            key, value = struct.unpack_from(">HI", body, offset)
            if key == frames.INITIAL_WINDOW:
                for stream in self._windows:
                    self._windows[stream] += value - self._initial
                self._initial = value
        self.raw(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _send_waiting(self) -> None:
        """Sends the waiting data that the windows allow."""
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
