"""The rules of HTTP/2, kept by h2, for a server that writes its DATA frames itself."""

from __future__ import annotations

import contextlib
import logging

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from h2.connection import ConnectionInputs
from h2.frame_buffer import FrameBuffer
from hyperframe.frame import Frame

from infeed_server.http2.stream import Headers

# At the level of DEBUG it writes each header that it reads, and so the tokens of trainers.
logging.getLogger("hpack").setLevel(logging.INFO)

MAX_STREAMS = 512
"""Open streams of one connection: more than a server answers, so that a peer is told that it has
too many rather than left waiting for one to end."""

MAX_HEADER_BYTES = 1 << 14

_MAX_SETTINGS = 64
"""Kinds of settings that are kept for a peer; HTTP/2 knows a dozen."""

_MAX_TABLE_BYTES = 1 << 12
"""For headers that a peer is to remember, whatever more it has room for: it costs as much here."""

_HEAD_BYTES = 9
_NO_ERROR = 0


class BrokenError(ConnectionAbortedError):
    """The peer does not speak HTTP/2 as it must."""


class Machine:
    """What a peer may be told, and what it has said. Used by one thread at a time.

    What concerns one stream raises `h2.exceptions.H2Error` when that is no more.
    """

    def __init__(self) -> None:
        self._h2 = _Rules()
        self._unsent = bytearray()
        self._h2.initiate_connection()

    # To the peer.

    @property
    def unsent_bytes(self) -> int:
        self._unsent += self._h2.data_to_send()
        return len(self._unsent)

    def take_unsent(self) -> bytearray:
        """All that is to be sent, besides DATA."""
        self._unsent += self._h2.data_to_send()
        out, self._unsent = self._unsent, bytearray()
        return out

    def send_headers(self, number: int, headers: Headers, *, end: bool) -> None:
        self._h2.send_headers(number, headers, end_stream=end)
        if end and not self._h2.streams[number].closed:
            self._h2.reset_stream(number, _NO_ERROR)  # the peer need not go on with its request

    def room(self, number: int) -> int:
        """Bytes that may be sent on a stream now; none on one that is no more."""
        stream = self._h2.streams.get(number)
        if stream is None or stream.closed:
            return 0
        return max(0, self._h2.local_flow_control_window(number))

    def claim(self, number: int, most: int) -> int:
        """How many bytes the caller has to send, for which the peer's window is charged."""
        if count := min(self.room(number), most):
            # h2 is told of the bytes, which it does not see.
            self._h2.streams[number].outbound_flow_control_window -= count
            self._h2.outbound_flow_control_window -= count
        return count

    @property
    def frame_bytes(self) -> int:
        """The largest frame that the peer takes."""
        return self._h2.max_outbound_frame_size

    def reset(self, number: int, code: int) -> None:
        """Does nothing to a stream that is no more."""
        with contextlib.suppress(h2.exceptions.H2Error):
            self._h2.reset_stream(number, code)

    def acknowledge(self, number: int, charge: int) -> None:
        """Opens the peer's window again."""
        if charge:
            self._h2.acknowledge_received_data(charge, number)

    def ping(self) -> None:
        self._h2.ping(b"infeed??")

    def go_away(self) -> None:
        """Streams that the peer opens from now on are not answered; those that are open go on."""
        self._h2.close_connection()

    # From the peer.

    def receive(self, data: bytes) -> list[h2.events.Event]:
        """What it says. Raises `BrokenError`, when what is still unsent says why."""
        try:
            events = self._h2.receive_data(data)
            self._bound_memory()
        except BrokenError:
            raise
        except Exception as error:  # whatever hostile bytes make h2 raise
            raise BrokenError(f"it does not speak HTTP/2: {error}") from error
        return events

    def _bound_memory(self) -> None:
        if len(self._h2.remote_settings) > _MAX_SETTINGS:
            raise BrokenError(f"the peer has more than {_MAX_SETTINGS} settings")
        encoder = self._h2.encoder
        encoder.header_table_size = min(encoder.header_table_size, _MAX_TABLE_BYTES)
        sizes = encoder.table_size_changes
        if len(sizes) > 2:  # what has to be told of them is the smallest and the last
            encoder.table_size_changes = [min(sizes), sizes[-1]]


class _Rules(h2.connection.H2Connection):
    """h2's, but a GOAWAY, of either side, ends nothing: open streams go on."""

    def __init__(self) -> None:
        super().__init__(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self.state_machine = _States()
        self.incoming_buffer = _Incoming(server=True)
        codes = h2.settings.SettingCodes
        self.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                codes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
            },
        )
        self.decoder.max_header_list_size = MAX_HEADER_BYTES

    def clear_outbound_data_buffer(self) -> None:
        """Keeps what is to be sent, which h2 would forget at the peer's GOAWAY."""


class _Incoming(FrameBuffer):
    """Refuses a frame that is too large by its head; h2 would first take in all its 16 MiB."""

    def __next__(self) -> Frame:
        if len(self._data) >= _HEAD_BYTES:
            self._validate_frame_length(int.from_bytes(self._data[:3], "big"))
        return super().__next__()


class _States(h2.connection.H2ConnectionStateMachine):
    def process_input(self, input_: ConnectionInputs) -> list[h2.events.Event]:
        if input_ in {ConnectionInputs.SEND_GOAWAY, ConnectionInputs.RECV_GOAWAY}:
            return []
        return super().process_input(input_)
