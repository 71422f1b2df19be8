"""One HTTP/2 request whose answer is received where it is to lie.

h2 keeps the rules of the protocol: headers, settings, pings, windows. Only DATA frames, which
carry nearly all bytes, and GOAWAY pass it by: their content goes from the socket straight into the
memory that the reader gives, copied once, by the kernel.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterable

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from infeed.inflow import Inflow, LostError
from infeed.link import Link

# At the level of DEBUG it writes all headers as they travel, and so the trainer's token.
logging.getLogger("hpack").setLevel(logging.INFO)

MAX_FRAME_BYTES = (1 << 24) - 1
"""The largest that HTTP/2 knows: the fewer frames, the fewer steps."""

WINDOW_BYTES = (1 << 31) - 1
"""HTTP/2's own flow control is opened as wide as it goes: what a feed asks for bounds what it is
sent, in bytes, and a window besides would only add its round trips."""

_FIRST_WINDOW_BYTES = (1 << 16) - 1
"""That of a connection as HTTP/2 has it; settings change those of streams only."""

_CREDIT_BYTES = 1 << 26
"""What is received before the window is opened again by as much."""

_MAX_CONTROL_BYTES = 1 << 20
"""Frames other than DATA are far smaller; a larger one is damage."""

_DATA, _SETTINGS, _GOAWAY, _WINDOW_UPDATE = 0, 4, 7, 8
_END_STREAM, _PADDED = 1, 8
_STREAM = 1
_NO_ERROR = 0

Headers = list[tuple[str, str]]


class BrokenError(Exception):
    """The peer does not speak HTTP/2 as it must."""


class Exchange:
    """One request on a connection of its own, and its answer.

    One thread reads; others may send. Raises `LostError`, `BrokenError` and `OSError`, and
    `TimeoutError` at the deadline.
    """

    def __init__(
        self,
        link: Link,
        deadline: float | None = None,
        draining: Callable[[], None] = lambda: None,
    ) -> None:
        """`deadline`, of `time.monotonic`, bounds every wait; without one, pings do.

        `draining` is called when the peer says that it will soon be gone.
        """
        self.headers: dict[str, str] = {}
        """Of the answer, names in lower case."""
        self.trailers: dict[str, str] = {}
        self._link = link
        self._draining = draining
        self._inflow = Inflow(link, deadline, self._ping)
        self._machine = _machine()
        self._changed = threading.Condition()  # holds for the machine and the order of sending
        self._greeted = False
        self._over = False
        self._ended = False
        self._data_left = 0
        self._padding_left = 0
        self._credit = 0

    def start(self, headers: Headers) -> None:
        """Sends the request's headers."""
        with self._changed:
            self._machine.initiate_connection()
            self._machine.send_headers(_STREAM, headers)
            self._flush(_window_update(0, WINDOW_BYTES - _FIRST_WINDOW_BYTES))

    def send(self, data: bytes, *, end: bool = False) -> None:
        """Sends data of the request, from any thread; waits while the peer's window is shut."""
        with self._changed:
            try:
                while True:
                    room = self._wait_for_room(min(1, len(data)))
                    piece, data = data[:room], data[room:]
                    self._machine.send_data(_STREAM, piece, end_stream=end and not data)
                    self._flush()
                    if not data:
                        return
            except h2.exceptions.H2Error as error:  # the reader was told why
                raise LostError("the stream is over") from error

    def read(self, into: memoryview) -> int:
        """Some of the answer's data, one byte at least; 0 when it has ended."""
        while not self._data_left:
            self._skip_padding()
            if self._ended:
                return 0
            self._next_frame()
        count = self._inflow.some(into[: self._data_left])
        self._data_left -= count
        return count

    def end(self) -> None:
        """Wakes whoever waits to send; from any thread."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _wait_for_room(self, least: int) -> int:
        """Bytes that the peer takes now, in one frame."""
        machine = self._machine
        while not (self._over or self._ended):
            room = machine.local_flow_control_window(_STREAM)
            if room >= least:
                return min(room, machine.max_outbound_frame_size)
            self._changed.wait()
        raise LostError("the stream is over")

    def _next_frame(self) -> None:
        head = self._inflow.exactly(9)
        length = int.from_bytes(head[:3], "big")
        kind, flags = head[3], head[4]
        if not self._greeted and kind != _SETTINGS:
            speaks = "HTTP/1" if head.startswith(b"HTTP/1") else "something else"
            raise BrokenError(f"it speaks {speaks}, not HTTP/2")
        self._greeted = True
        if kind == _DATA:
            self._begin_data(length, flags, int.from_bytes(head[5:], "big"))
        elif length > _MAX_CONTROL_BYTES:
            raise BrokenError(f"a frame of kind {kind} and {length} bytes")
        elif kind == _GOAWAY:
            self._goaway(self._inflow.exactly(length))
        else:
            self._control(head + self._inflow.exactly(length))

    def _begin_data(self, length: int, flags: int, stream: int) -> None:
        if stream != _STREAM or self._ended or not self.headers:
            raise BrokenError(f"{length} bytes of data for stream {stream}, which takes none")
        padding = 0
        if flags & _PADDED and length:
            padding = self._inflow.exactly(1)[0] + 1
        if padding > length:
            raise BrokenError(f"a padding of {padding} bytes in a frame of {length}")
        self._data_left = length - padding
        self._padding_left = max(0, padding - 1)
        if flags & _END_STREAM:
            self._ended = True
        self._credit += length
        if self._credit >= _CREDIT_BYTES:
            credit, self._credit = self._credit, 0
            with self._changed:
                self._flush(_window_update(0, credit) + _window_update(_STREAM, credit))

    def _goaway(self, body: bytes) -> None:
        """The peer takes no new streams. Without an error, it ends what it has begun."""
        last, error = struct.unpack_from(">II", body) if len(body) >= 8 else (0, 1)
        if error != _NO_ERROR or last & 0x7FFFFFFF < _STREAM:
            told = body[8:].decode("utf-8", "replace")
            raise LostError(f"the connection was closed with code {error} {told}".rstrip())
        self._draining()

    def _control(self, frame: bytes) -> None:
        with self._changed:
            try:
                events = self._machine.receive_data(frame)
            except (h2.exceptions.H2Error, ValueError) as error:
                raise BrokenError(str(error) or type(error).__name__) from error
            self._flush()
            self._changed.notify_all()
        for event in events:
            if getattr(event, "stream_id", _STREAM) == _STREAM:
                self._on(event)

    def _on(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            self.headers = _texts(event.headers)
        elif isinstance(event, h2.events.TrailersReceived):
            self.trailers = _texts(event.headers)
        elif isinstance(event, h2.events.StreamEnded):
            self._ended = True
        elif isinstance(event, h2.events.StreamReset) and not self._ended:
            raise LostError(f"the stream was reset with code {event.error_code!s}")

    def _skip_padding(self) -> None:
        if self._padding_left:
            self._inflow.exactly(self._padding_left)
            self._padding_left = 0

    def _ping(self) -> None:
        with self._changed:
            self._machine.ping(b"infeed??")
            self._flush()

    def _flush(self, more: bytes = b"") -> None:
        if out := self._machine.data_to_send() + more:
            try:
                self._link.send(out)
            except OSError:
                self._link.cut()  # half a frame may be on its way: nothing can follow it
                raise


def _machine() -> h2.connection.H2Connection:
    codes = h2.settings.SettingCodes
    machine = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    machine.local_settings = h2.settings.Settings(
        client=True,
        initial_values={
            codes.ENABLE_PUSH: 0,
            codes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            codes.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
            codes.MAX_HEADER_LIST_SIZE: 1 << 16,
        },
    )
    machine.max_inbound_frame_size = MAX_FRAME_BYTES  # else known to h2 once the peer has it
    return machine


def _window_update(stream: int, increment: int) -> bytes:
    return struct.pack(">BHBBII", 0, 4, _WINDOW_UPDATE, 0, stream, increment)


def _texts(headers: Iterable[tuple[bytes | str, bytes | str]]) -> dict[str, str]:
    return {_text(name).lower(): _text(value) for name, value in headers}


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


__all__ = ["BrokenError", "Exchange", "Headers", "LostError"]
