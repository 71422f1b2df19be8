"""The HTTP/2 protocol state of a connection, on top of h2, and DATA frames without copies."""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from infeed.http2.h2_internals import hide_headers_from_log, set_local_settings
from infeed_server.http2 import h2_internals
from infeed_server.http2.frame_budget import FrameBudget
from infeed_server.http2.refusals import Refusal, RefusedPeerError
from infeed_server.http2.socket import Buffer

hide_headers_from_log()

Headers: TypeAlias = "list[tuple[str, str]]"

MAX_CONCURRENT_STREAMS = 512
"""Open streams of one connection. More than the server handles, so that a client gets an error at
the server's own limit instead of waiting for a stream to end."""

MAX_HEADER_BYTES = 1 << 14
"""Decoded headers of a request; larger ones are refused, and the connection continues."""

_HEADER_OVERHEAD_BYTES = 32
"""Bytes that HTTP/2 adds for each header to its name and value."""

_MAX_DECODED_BYTES = 96 << 10
"""Decoded headers that are read to their end, as others on the connection depend on them. More end
the connection. Proxies forward less: Envoy 60 KiB."""

_MAX_BLOCK_BYTES = 64 << 10
"""Encoded headers."""

_MAX_SETTINGS = 64
"""Kinds of settings that are stored for a peer; HTTP/2 defines a dozen."""

_MAX_HEADER_TABLE_BYTES = 1 << 12
"""The encoder's header table, however large a table the peer allows: it takes memory here too."""

_MAX_HALF_OPEN_STREAMS = 16
"""Streams whose response ended before their request. The peer ends or resets them; more are reset,
the oldest first. A reset right after a response makes haproxy drop what it has not forwarded yet,
which is the status."""

_FRAME_HEADER = struct.Struct(">BHBBI")
_DATA_FRAME = 0


class Http2ProtocolError(RefusedPeerError):
    """The peer violated HTTP/2."""

    reason: ClassVar[Refusal] = "protocol"


class FloodError(Http2ProtocolError):
    """The peer sent too much of something that HTTP/2 allows."""

    reason: ClassVar[Refusal] = "flood"


class BufferQueue:
    """Buffers that are consumed from the front without copies."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._views = [memoryview(buffer) for buffer in reversed(buffers) if len(buffer)]
        self.size = sum(map(len, self._views))

    def take(self, count: int) -> Iterator[memoryview]:
        """Yields views of the next `count` bytes, and removes them."""
        self.size -= count
        while count:
            view = self._views.pop()
            if len(view) > count:
                self._views.append(view[count:])
                view = view[:count]
            count -= len(view)
            yield view


def decode_headers(headers: Sequence[tuple[bytes, bytes]]) -> tuple[dict[str, str], bool]:
    """Returns the headers that fit in `MAX_HEADER_BYTES`, and whether all of them do."""
    decoded: dict[str, str] = {}
    size = 0
    for name, value in headers:
        size += len(name) + len(value) + _HEADER_OVERHEAD_BYTES
        if size > MAX_HEADER_BYTES:
            return decoded, False
        decoded[name.decode("latin-1")] = value.decode("latin-1")
    return decoded, True


def data_frames(
    stream_id: int, buffers: BufferQueue, count: int, max_frame_size: int
) -> Iterator[Buffer]:
    """Yields the next `count` bytes as DATA frames, none of which ends the stream."""
    while count:
        size = min(count, max_frame_size)
        yield _FRAME_HEADER.pack(size >> 16, size & 0xFFFF, _DATA_FRAME, 0, stream_id)
        yield from buffers.take(size)
        count -= size


class Http2Protocol:
    """The server side of one connection's protocol state. Not thread-safe.

    Methods for a stream raise `h2.exceptions.H2Error` when it is closed.
    """

    def __init__(self) -> None:
        self._budget = FrameBudget()
        self._frames = h2_internals.FrameFilter(self._budget.charge, _MAX_BLOCK_BYTES)
        self._h2 = _h2_connection(self._frames)
        self._unsent = bytearray()
        self._half_open: deque[int] = deque()
        self._h2.initiate_connection()
        h2_internals.accept_any_number_of_streams(self._h2)

    # To the peer.

    @property
    def unsent_bytes(self) -> int:
        self._unsent += self._h2.data_to_send()
        return len(self._unsent)

    def take_unsent(self) -> bytearray:
        """Returns and removes all frames to send, which are those other than DATA."""
        self._unsent += self._h2.data_to_send()
        unsent, self._unsent = self._unsent, bytearray()
        return unsent

    def send_headers(self, stream_id: int, headers: Headers, *, end: bool) -> None:
        self._h2.send_headers(stream_id, headers, end_stream=end)
        if end:
            self._budget.on_answered(stream_id)
        if end and not h2_internals.is_closed(self._h2, stream_id):
            self._half_open.append(stream_id)
            if len(self._half_open) > _MAX_HALF_OPEN_STREAMS:
                self.reset_stream(self._half_open.popleft(), ErrorCodes.NO_ERROR)

    def send_window(self, stream_id: int) -> int:
        """Returns how many bytes may be sent on a stream now; 0 when it is closed."""
        return h2_internals.send_window(self._h2, stream_id)

    def reserve(self, stream_id: int, limit: int, left: int) -> int:
        """Charges the send window for up to `limit` of the `left` bytes of a message.

        Returns how many they are; the caller must send them.
        """
        if count := min(h2_internals.send_window(self._h2, stream_id), limit):
            h2_internals.charge_window(self._h2, stream_id, count)
            self._budget.on_sent(stream_id, count, complete=count == left)
        return count

    @property
    def max_frame_size(self) -> int:
        """The largest frame that the peer accepts, in bytes."""
        return self._h2.max_outbound_frame_size

    def reset_stream(self, stream_id: int, code: int) -> None:
        """Resets a stream unless it is closed."""
        with contextlib.suppress(h2.exceptions.H2Error):
            self._h2.reset_stream(stream_id, code)

    def acknowledge_data(self, stream_id: int, count: int) -> None:
        """Lets the peer send `count` more bytes, on the stream and on the connection."""
        if count:
            self._h2.acknowledge_received_data(count, stream_id)

    def ping(self) -> None:
        self._h2.ping(b"infeed??")

    def go_away(self) -> None:
        """Sends GOAWAY: streams that the peer opens from now on are refused."""
        self._h2.close_connection()

    # From the peer.

    def admit(self, stream_id: int, *, authenticated: bool) -> None:
        """Lets the peer of a call send more frames."""
        self._budget.admit(stream_id, authenticated=authenticated)

    def forget(self, stream_id: int) -> None:
        """Frees what is kept for a stream that is closed."""
        self._budget.forget(stream_id)

    def receive(self, data: bytes) -> list[h2.events.Event]:
        """Returns the first events in `data`; while `is_paused` is true, a call without data more.

        Raises `Http2ProtocolError`; the unsent frames then hold the error code for the peer.
        """
        self._frames.resume(has_new_data=bool(data))
        try:
            events = self._h2.receive_data(data)
            h2_internals.limit_settings(self._h2, _MAX_SETTINGS, _MAX_HEADER_TABLE_BYTES)
        except h2.exceptions.DenialOfServiceError as error:
            raise FloodError(f"flood: {error}") from error
        except Exception as error:  # hostile bytes make h2 raise errors of many types
            raise Http2ProtocolError(f"invalid HTTP/2: {error}") from error
        return events

    @property
    def is_paused(self) -> bool:
        return self._frames.is_paused

    def take_unearned(self) -> float:
        """Returns, once, how many received frames no sent data has entitled the peer to."""
        return self._budget.take_unearned()


def _h2_connection(frames: h2_internals.FrameFilter) -> h2.connection.H2Connection:
    config = h2.config.H2Configuration(
        client_side=False, header_encoding=None, validate_inbound_headers=False
    )
    connection = h2.connection.H2Connection(config)
    h2_internals.outlive_goaway(connection)
    h2_internals.filter_frames(connection, frames)
    values = {
        SettingCodes.MAX_CONCURRENT_STREAMS: MAX_CONCURRENT_STREAMS,
        SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
    }
    set_local_settings(connection, values)
    h2_internals.decode_headers_of_streams(connection, _MAX_DECODED_BYTES)
    return connection
