"""Undocumented names of h2 that the server relies on, each behind one function.

Those of both ends are in `infeed.http2.h2_internals`. docs/transport.md has the tested versions of
h2, and all that the two ends assume of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.events import Event
from h2.exceptions import DenialOfServiceError
from h2.frame_buffer import FrameBuffer

if TYPE_CHECKING:
    from hyperframe.frame import Frame

_FRAME_HEADER_BYTES = 9


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


def reject_frames_early(connection: H2Connection) -> None:
    """Makes the connection reject a frame that is too large when its header arrives.

    h2 compares the size with the limit only after it has buffered the payload, up to 16 MiB, and
    has no option for it.

    Relies on `incoming_buffer`, on its `_data`, which begins with a frame's header, and on its
    `_validate_frame_length`.
    """
    connection.incoming_buffer = _FrameBuffer(server=True)


class _FrameBuffer(FrameBuffer):
    def __next__(self) -> Frame:
        if len(self._data) >= _FRAME_HEADER_BYTES:
            self._validate_frame_length(int.from_bytes(self._data[:3], "big"))
        return super().__next__()


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
