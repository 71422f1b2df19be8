"""One HTTP/2 request on its own connection, with response data received into the caller's memory.

h2 implements the protocol. DATA frames, which carry nearly all bytes, bypass it, straight into the
reader's memory, so that the kernel's copy is the only one; so does GOAWAY.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterable

import h2.events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from infeed.http2.socket import BufferedReceiver, ClientSocket, ConnectionLostError

logging.getLogger("hpack").setLevel(logging.INFO)  # at DEBUG it logs every header, tokens included

MAX_FRAME_BYTES = (1 << 24) - 1
"""The largest frame size of HTTP/2: fewer frames cost less."""

WINDOW_BYTES = (1 << 31) - 1
"""The largest window of HTTP/2: a feed bounds its requests; a smaller one would add round trips."""

_INITIAL_WINDOW_BYTES = (1 << 16) - 1
"""A connection's window at the start; unlike the window of a stream, no setting changes it."""

_WINDOW_UPDATE_BYTES = 1 << 26
"""After this number of received bytes, the windows are reopened by the same amount."""

_LOCAL_SETTINGS: dict[SettingCodes | int, int] = {
    SettingCodes.ENABLE_PUSH: 0,
    SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
    SettingCodes.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
    SettingCodes.MAX_HEADER_LIST_SIZE: 1 << 16,
}

_MAX_CONTROL_FRAME_BYTES = 1 << 20
"""Limit of frames other than DATA, which are far smaller; a larger one is corrupt."""

_FRAME_HEADER_BYTES = 9
_DATA, _SETTINGS, _GOAWAY, _WINDOW_UPDATE = 0, 4, 7, 8
_END_STREAM, _PADDED = 1, 8
_STREAM_ID = 1
_NO_ERROR = 0

Headers = list[tuple[str, str]]


class Http2ProtocolError(Exception):
    """The peer violates the HTTP/2 protocol, or uses another one."""


class Http2Request:
    """One request on its own connection, and its response. One thread reads; others may send."""

    def __init__(
        self,
        socket: ClientSocket,
        deadline: float | None = None,
        on_goaway: Callable[[], None] = lambda: None,
    ) -> None:
        """`deadline`, of `time.monotonic`, bounds every read; without one, keepalive pings do."""
        self.headers: dict[str, str] = {}
        """The response's headers, with lower-case names."""
        self.trailers: dict[str, str] = {}
        self.has_begun = False
        """Whether the peer has answered in HTTP/2."""
        self._socket = socket
        self._on_goaway = on_goaway
        self._deadline = deadline
        self._receiver = BufferedReceiver(socket, deadline, self._ping)
        self._h2 = H2Connection(H2Configuration(header_encoding=None))
        self._h2_changed = threading.Condition()  # its lock guards `_h2` and the order of sends
        self._cancelled = False
        self._response_ended = False
        self._data_left = 0
        self._unacknowledged_bytes = 0

    def send_headers(self, headers: Headers, begin_by: float | None = None) -> None:
        """Opens HTTP/2 and sends the request's headers."""
        if begin_by is not None:
            self._receiver.deadline = begin_by
        with self._h2_changed:
            self._h2.initiate_connection()
            self._h2.update_settings(_LOCAL_SETTINGS)
            self._h2.send_headers(_STREAM_ID, headers)
            self._flush(_window_update(0, WINDOW_BYTES - _INITIAL_WINDOW_BYTES))

    def send_data(self, data: bytes, *, end: bool = False) -> None:
        """Sends data of the request, from any thread; waits while the peer's window is full."""
        with self._h2_changed:
            try:
                while True:
                    size = self._wait_for_window(min(1, len(data)))
                    piece, data = data[:size], data[size:]
                    self._h2.send_data(_STREAM_ID, piece, end_stream=end and not data)
                    self._flush()
                    if not data:
                        return
            except H2Error as error:  # the reading thread raises the reason
                raise ConnectionLostError("the stream has ended") from error

    def read_data(self, into: memoryview) -> int:
        """Reads data of the response, at least one byte, and returns its size; 0 at the end."""
        while not self._data_left:
            if self._response_ended:
                return 0
            self._read_frame()
        count = self._receiver.read_some(into[: self._data_left])
        self._data_left -= count
        return count

    def cancel(self) -> None:
        """Makes current and later sends fail. Callable from any thread."""
        with self._h2_changed:
            self._cancelled = True
            self._h2_changed.notify_all()

    def _wait_for_window(self, min_bytes: int) -> int:
        """Waits for `min_bytes` of the peer's window; returns how much one frame can carry."""
        while not (self._cancelled or self._response_ended):
            window = self._h2.local_flow_control_window(_STREAM_ID)
            if window >= min_bytes:
                return min(window, self._h2.max_outbound_frame_size)
            self._h2_changed.wait()
        raise ConnectionLostError("the stream has ended")

    def _read_frame(self) -> None:
        """Reads one frame, or only the header of a DATA frame."""
        header = self._receiver.read_exactly(_FRAME_HEADER_BYTES)
        length = int.from_bytes(header[:3], "big")
        frame_type, flags = header[3], header[4]
        if not self.has_begun and frame_type != _SETTINGS:
            protocol = "HTTP/1" if header.startswith(b"HTTP/1") else "an unknown protocol"
            raise Http2ProtocolError(f"it uses {protocol}, not HTTP/2")
        self.has_begun = True
        self._receiver.deadline = self._deadline
        if frame_type == _DATA:
            self._start_data(length, flags, int.from_bytes(header[5:], "big"))
        elif length > _MAX_CONTROL_FRAME_BYTES:
            raise Http2ProtocolError(f"a frame of type {frame_type} has {length} bytes")
        elif frame_type == _GOAWAY:
            self._handle_goaway(self._receiver.read_exactly(length))
        else:
            self._handle_control_frame(header + self._receiver.read_exactly(length))

    def _start_data(self, length: int, flags: int, stream_id: int) -> None:
        if stream_id != _STREAM_ID or not self.headers or flags & _PADDED:
            raise Http2ProtocolError(
                f"unexpected DATA frame of {length} bytes for stream {stream_id}, flags {flags}"
            )
        self._data_left = length
        if flags & _END_STREAM:
            self._response_ended = True
        self._unacknowledged_bytes += length
        if self._unacknowledged_bytes >= _WINDOW_UPDATE_BYTES:
            increment, self._unacknowledged_bytes = self._unacknowledged_bytes, 0
            with self._h2_changed:
                self._flush(_window_update(0, increment) + _window_update(_STREAM_ID, increment))

    def _handle_goaway(self, payload: bytes) -> None:
        """Handles GOAWAY: without an error, the peer completes the streams that it has begun."""
        last, error = struct.unpack_from(">II", payload) if len(payload) >= 8 else (0, 1)
        if error != _NO_ERROR or last & 0x7FFFFFFF < _STREAM_ID:
            reason = payload[8:].decode("utf-8", "replace")
            raise ConnectionLostError(
                f"the peer closed the connection with error code {error} {reason}".rstrip()
            )
        self._on_goaway()

    def _handle_control_frame(self, frame: bytes) -> None:
        with self._h2_changed:
            try:
                events = self._h2.receive_data(frame)
            except (H2Error, ValueError) as error:
                raise Http2ProtocolError(str(error) or type(error).__name__) from error
            self._flush()
            self._h2_changed.notify_all()
        for event in events:
            if getattr(event, "stream_id", _STREAM_ID) == _STREAM_ID:
                self._handle_event(event)

    def _handle_event(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            self.headers = _decode_headers(event.headers)
        elif isinstance(event, h2.events.TrailersReceived):
            self.trailers = _decode_headers(event.headers)
        elif isinstance(event, h2.events.StreamEnded):
            self._response_ended = True
        elif isinstance(event, h2.events.StreamReset) and not self._response_ended:
            raise ConnectionLostError(f"the stream was reset with error code {event.error_code!s}")

    def _ping(self) -> None:
        with self._h2_changed:
            self._h2.ping(b"infeed??")
            self._flush()

    def _flush(self, more: bytes = b"") -> None:
        if output := self._h2.data_to_send() + more:
            try:
                self._socket.send(output)
            except OSError:
                self._socket.abort()  # a frame may be sent in part: nothing can follow it
                raise


def _window_update(stream_id: int, increment: int) -> bytes:
    return struct.pack(">BHBBII", 0, 4, _WINDOW_UPDATE, 0, stream_id, increment)


def _decode_headers(headers: Iterable[tuple[bytes | str, bytes | str]]) -> dict[str, str]:
    def decode(value: bytes | str) -> str:
        return value if isinstance(value, str) else value.decode("latin-1")

    return {decode(name).lower(): decode(value) for name, value in headers}
