"""Undocumented names of h2 that the server relies on, each behind one function.

Those of both ends are in `infeed.http2.h2_internals`. docs/transport.md has the tested versions of
h2, and all that the two ends assume of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import Event
from h2.exceptions import DenialOfServiceError, ProtocolError
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from h2.utilities import HeaderValidationFlags, validate_headers
from hpack import Decoder, HeaderTuple
from hpack.exceptions import HPACKError, OversizedHeaderListError
from hyperframe.frame import HeadersFrame

if TYPE_CHECKING:
    from hyperframe.frame import Frame

_FRAME_HEADER_BYTES = 9
_HEADERS, _CONTINUATION = 1, 9

INCOMPLETE = -1
"""The type of what is received of a frame, but for its end."""

_MAX_FRAMES_AT_ONCE = 64
"""Frames after which the connection's lock is released for a moment."""

_REQUEST = HeaderValidationFlags(
    is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False
)


def outlive_goaway(connection: H2Connection) -> None:
    """Makes the connection continue after a GOAWAY of either side, for its open streams.

    h2 closes the whole connection, and discards the frames that it was about to send. HTTP/2 lets
    open streams end normally; h2 has no option for it.

    Relies on `state_machine.process_input` for all that h2 does about a GOAWAY, except that it
    calls `clear_outbound_data_buffer`.
    """
    connection.state_machine = _StateMachine()
    connection.clear_outbound_data_buffer = _keep_data  # type: ignore[method-assign]


class _StateMachine(H2ConnectionStateMachine):
    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        if input_ in {ConnectionInputs.SEND_GOAWAY, ConnectionInputs.RECV_GOAWAY}:
            return []
        return super().process_input(input_)


def _keep_data() -> None:
    """Replaces a method that discards unsent frames."""


class FrameFilter(FrameBuffer):
    """Judges frames before h2 parses them, and hands it a few at a time.

    h2 compares a frame's size with the limit only after it has buffered the payload, up to 16 MiB,
    parses whatever arrives, and has no option for it. Relies on `_data`, which begins with a
    frame's header, and on `_validate_frame_length`.
    """

    def __init__(self, charge: Callable[[int, int, int], bool], max_block_bytes: int) -> None:
        """`charge` is called with the type, stream and size of each frame, and returns False to end
        the connection. `max_block_bytes` limits encoded headers."""
        super().__init__(server=True)
        self._charge = charge
        self._max_block_bytes = max_block_bytes
        self._block_bytes = 0
        self._left = 0
        self._has_new_data = False
        self.is_paused = False
        """Whether `receive_data` has left frames, for another call."""

    def resume(self, *, has_new_data: bool = False) -> None:
        """Prepares for a call of `receive_data`, which ends after headers or a few frames.

        New data that completes no frame is charged like one, of the type `INCOMPLETE`.
        """
        self._left = _MAX_FRAMES_AT_ONCE
        self._has_new_data = has_new_data
        self.is_paused = False

    def __next__(self) -> Frame:
        if not self._left:
            self.is_paused = True
            raise StopIteration
        if len(self._data) >= _FRAME_HEADER_BYTES:
            size = int.from_bytes(self._data[:3], "big")
            self._validate_frame_length(size)
            if len(self._data) >= _FRAME_HEADER_BYTES + size:
                self._judge(self._data[3], int.from_bytes(self._data[5:9], "big"), size)
                self._left -= 1
                self._has_new_data = False
        if self._has_new_data:
            self._has_new_data = False
            self._judge(INCOMPLETE, 0, 0)
        frame = super().__next__()
        if isinstance(frame, HeadersFrame):
            self._left = 0  # so that a call is admitted before its data is charged
        return frame

    def _judge(self, kind: int, stream_id: int, size: int) -> None:
        if not self._charge(kind, stream_id & 0x7FFFFFFF, size):
            raise DenialOfServiceError("too many frames for the data that was sent")
        if kind == _HEADERS:
            self._block_bytes = size
        elif kind == _CONTINUATION:
            self._block_bytes += size
            if self._block_bytes > self._max_block_bytes:
                raise DenialOfServiceError(f"more than {self._max_block_bytes} bytes of headers")


def filter_frames(connection: H2Connection, frames: FrameFilter) -> None:
    """Makes the connection read its frames from `frames`. Relies on `incoming_buffer`."""
    connection.incoming_buffer = frames


def decode_headers_of_streams(connection: H2Connection, max_bytes: int) -> None:
    """Leaves headers to `headers_problem`, except what makes all later ones undecodable.

    h2 ends the connection for headers above the announced size, and gives a broken encoding the
    wrong error code. Headers above `max_bytes` still end the connection. `content-length`, which
    gRPC does not use, is removed: h2 would end the connection for a wrong one.

    Relies on `decoder`, and on `ProtocolError` with its `error_code` as that of the GOAWAY.
    """
    connection.decoder = _Decoder(max_bytes)


class _CompressionError(ProtocolError):
    error_code = ErrorCodes.COMPRESSION_ERROR


class _Decoder(Decoder):
    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        try:
            headers = super().decode(data, raw)
        except OversizedHeaderListError:
            raise
        except (HPACKError, IndexError, TypeError, UnicodeDecodeError) as error:
            raise _CompressionError(f"headers that cannot be decoded: {error}") from error
        return [header for header in headers if header[0] != b"content-length"]


def headers_problem(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Returns what makes a request's headers malformed; None for good ones.

    With h2's option `validate_inbound_headers`, they would end the connection, which other clients
    may share. Relies on `utilities.validate_headers`, which that option calls.
    """
    try:
        list(validate_headers(headers, _REQUEST))
    except ProtocolError as error:
        return str(error)
    return None


def accept_any_number_of_streams(connection: H2Connection) -> None:
    """Leaves the limit on streams to the caller; to be called once the limit has been announced.

    h2 ends the connection for a stream too many, and has no option to refuse that stream alone.
    Relies on `local_settings`.
    """
    settings = {
        SettingCodes(code): value
        for code, value in connection.local_settings.items()
        if code != SettingCodes.MAX_CONCURRENT_STREAMS
    }
    connection.local_settings = Settings(client=False, initial_values=settings)


def limit_settings(connection: H2Connection, max_kinds: int, max_table_bytes: int) -> None:
    """Limits the memory that the peer's settings take. Raises `H2Error` for too many kinds.

    h2 stores settings of unknown kinds too. Its encoder makes a header table as large as the peer
    allows, and records each change of the size until headers are sent. There are no options.

    Relies on the length of `remote_settings`, and on the encoder's `header_table_size` and
    `table_size_changes`.
    """
    if len(connection.remote_settings) > max_kinds:
        raise DenialOfServiceError(f"more than {max_kinds} kinds of settings")
    encoder = connection.encoder
    encoder.header_table_size = min(encoder.header_table_size, max_table_bytes)
    sizes = encoder.table_size_changes
    if len(sizes) > 2:  # HPACK requires the smallest and the last only
        encoder.table_size_changes = [min(sizes), sizes[-1]]


def is_closed(connection: H2Connection, stream_id: int) -> bool:
    """Returns whether both sides have ended the stream, or one has reset it.

    No public method returns it, and resetting a closed stream would send a frame. Relies on
    `streams`, from which a closed stream is removed at some time, and on `closed` of a stream.
    """
    stream = connection.streams.get(stream_id)
    return stream is None or stream.closed


def send_window(connection: H2Connection, stream_id: int) -> int:
    """Returns how many bytes may be sent on a stream now; 0 when it is closed.

    The public `local_flow_control_window` counts closed streams too, and raises an error for old
    ones. Relies on `streams`, `closed`, and the windows that `charge_window` changes.
    """
    stream = connection.streams.get(stream_id)
    if stream is None or stream.closed:
        return 0
    window = min(connection.outbound_flow_control_window, stream.outbound_flow_control_window)
    return max(0, window)


def charge_window(connection: H2Connection, stream_id: int, count: int) -> None:
    """Charges the windows for `count` bytes that are sent without h2.

    The public `send_data` copies the bytes. Relies on `outbound_flow_control_window` of the stream
    and of the connection, which h2 itself changes for WINDOW_UPDATE and SETTINGS frames.
    """
    connection.streams[stream_id].outbound_flow_control_window -= count
    connection.outbound_flow_control_window -= count
