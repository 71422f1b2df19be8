"""Undocumented names of h2: each test fails if h2 drops one, or if it behaves in another way."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from infeed.http2.h2_internals import set_local_settings
from infeed_server.http2.h2_internals import (
    FrameFilter,
    accept_any_number_of_streams,
    charge_window,
    decode_headers_of_streams,
    filter_frames,
    headers_problem,
    is_closed,
    limit_settings,
    outlive_goaway,
    send_window,
)

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/s/m"), (":authority", "s")]
RESPONSE = [(":status", "200")]
TRAILERS = [("grpc-status", "0")]
GOAWAY = b"\0\0\x08\7\0\0\0\0\0" + bytes(8)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
PING = b"\0\0\x08\6\0\0\0\0\0infeed!!"
PING_REPLY = b"\0\0\x08\6\1\0\0\0\0infeed!!"
WINDOW = 65_535  # of connections and streams, at the start

Connection = h2.connection.H2Connection


def connect(
    *changes: Callable[[Connection], None], streams: int = 1
) -> tuple[Connection, Connection]:
    """Returns a changed server and an unchanged client, with open streams 1, 3, ..."""
    server = Connection(h2.config.H2Configuration(client_side=False))
    for change in changes:
        change(server)
    client = Connection(h2.config.H2Configuration(client_side=True))
    for each in (server, client):
        each.initiate_connection()
    for index in range(streams):
        client.send_headers(1 + 2 * index, REQUEST)
    exchange(client, server)
    return server, client


def exchange(first: Connection, second: Connection) -> list[h2.events.Event]:
    """Passes frames in both directions; returns the events of both ends."""
    events: list[h2.events.Event] = []
    while data := first.data_to_send():
        events += second.receive_data(data)
        events += first.receive_data(second.data_to_send())
    return events


def data_frame(stream_id: int, data: bytes) -> bytes:
    return len(data).to_bytes(3, "big") + struct.pack(">BBI", 0, 0, stream_id) + data


def test_streams_outlive_a_goaway_of_the_peer() -> None:
    server, client = connect(outlive_goaway)
    events = server.receive_data(GOAWAY + data_frame(1, b"more"))
    assert isinstance(events[-1], h2.events.DataReceived)
    server.send_headers(1, RESPONSE)
    server.send_headers(1, TRAILERS, end_stream=True)
    events = client.receive_data(server.data_to_send())
    assert isinstance(events[-1], h2.events.StreamEnded)


def test_unsent_frames_outlive_a_goaway_of_the_peer() -> None:
    server, _ = connect(outlive_goaway)
    server.ping(b"unsent!!")
    server.receive_data(PING + GOAWAY)
    sent = server.data_to_send()
    assert b"unsent!!" in sent
    assert PING_REPLY in sent


def test_streams_outlive_a_goaway_of_the_server() -> None:
    server, _ = connect(outlive_goaway)
    server.close_connection()
    server.send_headers(1, RESPONSE)
    events = server.receive_data(PING + data_frame(1, b"more"))
    assert isinstance(events[-1], h2.events.DataReceived)
    server.send_headers(1, TRAILERS, end_stream=True)
    sent = server.data_to_send()
    assert sent.index(GOAWAY[:9]) < sent.index(PING_REPLY)


def test_protocol_error_sends_a_goaway_all_the_same() -> None:
    server, client = connect(outlive_goaway)
    with pytest.raises(h2.exceptions.ProtocolError):
        server.receive_data(b"\0\0\4\x08\0\0\0\0\0" + bytes(4))  # WINDOW_UPDATE of 0 bytes
    (event,) = client.receive_data(server.data_to_send())
    assert isinstance(event, h2.events.ConnectionTerminated)
    assert event.error_code != ErrorCodes.NO_ERROR


class Unpaused(FrameFilter):
    """Hands on all frames at once."""

    def __next__(self) -> Any:
        self.resume()
        return super().__next__()


def filtered(connection: Connection) -> None:
    filter_frames(connection, Unpaused(lambda *frame: True, 1 << 16))


@pytest.mark.parametrize("kind", range(10))
def test_too_large_frame_is_rejected_by_its_header(kind: int) -> None:
    server, _ = connect(filtered)
    header = ((1 << 14) + 1).to_bytes(3, "big") + struct.pack(">BBI", kind, 0, 1)
    assert server.receive_data(header[:8]) == []
    with pytest.raises(h2.exceptions.FrameTooLargeError):
        server.receive_data(header[8:])


def test_largest_frame_is_accepted() -> None:
    server, _ = connect(filtered)
    frame = data_frame(1, bytes(1 << 14))
    assert server.receive_data(frame[:9]) == []
    (event,) = server.receive_data(frame[9:])
    assert isinstance(event, h2.events.DataReceived)


def test_too_large_frame_after_others_in_the_same_bytes_is_rejected() -> None:
    server, _ = connect(filtered)
    header = ((1 << 14) + 1).to_bytes(3, "big") + b"\0\0\0\0\0\1"
    with pytest.raises(h2.exceptions.FrameTooLargeError):
        server.receive_data(PING + data_frame(1, b"data") + header)


def test_frames_are_judged_before_they_are_parsed() -> None:
    judged: list[tuple[int, int, int]] = []

    def charge(*frame: int) -> bool:
        judged.append(frame)
        return len(judged) < 5

    frames = FrameFilter(charge, 1 << 16)
    server = Connection(h2.config.H2Configuration(client_side=False))
    filter_frames(server, frames)
    server.initiate_connection()
    frames.resume()
    server.receive_data(PREFACE + PING + PING[:-1])
    assert judged == [(4, 0, 0), (6, 0, 8)]  # the last frame is not complete
    with pytest.raises(h2.exceptions.DenialOfServiceError):
        server.receive_data(PING[-1:] + PING * 50)
    assert len(judged) == 5


def test_encoded_headers_are_limited_over_all_their_frames() -> None:
    server, _ = connect(filtered)
    size = 1 << 14
    begin = size.to_bytes(3, "big") + struct.pack(">BBI", 1, 0, 1) + bytes(size)
    more = size.to_bytes(3, "big") + struct.pack(">BBI", 9, 0, 1) + bytes(size)
    server.receive_data(begin + 3 * more)  # 64 KiB
    with pytest.raises(h2.exceptions.DenialOfServiceError, match="bytes of headers"):
        server.receive_data(b"\0\0\1" + struct.pack(">BBI", 9, 0, 1) + b"x")


def test_a_turn_has_a_limited_number_of_frames() -> None:
    judged: list[int] = []

    def charge(_kind: int, stream_id: int, _size: int) -> bool:
        judged.append(stream_id)
        return True

    frames = FrameFilter(charge, 1 << 16)
    server = Connection(h2.config.H2Configuration(client_side=False))
    filter_frames(server, frames)
    server.initiate_connection()
    frames.resume()
    reserved_bit_set = PING[:5] + b"\x80\0\0\0" + PING[9:]
    server.receive_data(PREFACE + reserved_bit_set * 100)
    assert frames.is_paused
    assert judged == [0] * 64


def test_headers_end_a_turn() -> None:  # so that what follows is charged to the call
    frames = FrameFilter(lambda *frame: True, 1 << 16)
    server, client = connect(lambda server: filter_frames(server, frames), streams=0)
    client.send_headers(1, REQUEST)
    client.send_data(1, b"x")
    client.send_headers(3, REQUEST)
    kinds = []
    data = client.data_to_send()
    while data or frames.is_paused:
        frames.resume()
        kinds.append([type(event) for event in server.receive_data(data)][-1:])
        data = b""
    assert kinds == [
        [h2.events.RequestReceived],
        [h2.events.RequestReceived],
        [],
    ]


def test_any_number_of_streams_is_accepted_once_the_limit_is_announced() -> None:
    server = Connection(h2.config.H2Configuration(client_side=False))
    set_local_settings(server, {SettingCodes.MAX_CONCURRENT_STREAMS: 2})
    client = Connection(h2.config.H2Configuration(client_side=True))
    for each in (server, client):
        each.initiate_connection()
    accept_any_number_of_streams(server)
    server.data_to_send()  # the client does not learn the limit
    for number in range(5):
        client.send_headers(2 * number + 1, REQUEST)
    events = server.receive_data(client.data_to_send())
    assert sum(isinstance(event, h2.events.RequestReceived) for event in events) == 5


def test_undecodable_headers_have_their_own_error_code() -> None:
    server, client = connect(lambda server: decode_headers_of_streams(server, 1000), streams=0)
    with pytest.raises(h2.exceptions.ProtocolError):
        server.receive_data(b"\0\0\3\1\4\0\0\0\1\xff\xff\xff")
    assert exchange(server, client)[-1].error_code == ErrorCodes.COMPRESSION_ERROR


def test_headers_above_the_last_limit_end_the_connection() -> None:
    server, client = connect(lambda server: decode_headers_of_streams(server, 1000), streams=0)
    client.send_headers(1, [*REQUEST, ("x", "y" * 1000)])
    with pytest.raises(h2.exceptions.DenialOfServiceError):
        server.receive_data(client.data_to_send())


def test_wrong_content_length_is_ignored() -> None:
    server, client = connect(lambda server: decode_headers_of_streams(server, 1000), streams=0)
    client.send_headers(1, [*REQUEST, ("content-length", "3")])
    frames = client.data_to_send() + data_frame(1, b"data")
    events = server.receive_data(frames)
    assert isinstance(events[-1], h2.events.DataReceived)


GOOD = [(name.encode(), value.encode()) for name, value in REQUEST]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ((), None),
        (((b"x-y", b"z"),), None),
        (((b"UPPER", b"x"),), "uppercase"),
        (((b"a b", b"x"),), "Illegal character"),
        (((b"x", b"a\r\nb: c"),), "Illegal character"),
        (((b":path", b"twice"),), "duplicate"),
        (((b"connection", b"x"),), "Connection-specific"),
        (((b"te", b"gzip"),), "TE header"),
    ],
)
def test_malformed_headers_have_a_problem(more: Any, problem: str | None) -> None:
    found = headers_problem([*GOOD, *more])
    assert found is None if problem is None else problem.lower() in str(found).lower()
    assert headers_problem(GOOD[:2]) is not None


def settings_frame(code: int, value: int) -> bytes:
    return b"\0\0\6\4\0\0\0\0\0" + struct.pack(">HI", code, value)


def test_settings_of_unknown_kinds_are_counted() -> None:
    server, _ = connect()
    limit_settings(server, 20, 4096)
    for code in range(100, 120):
        server.receive_data(settings_frame(code, 1))
    with pytest.raises(h2.exceptions.H2Error, match="more than 20 kinds of settings"):
        limit_settings(server, 20, 4096)


def test_header_table_is_limited_whatever_the_peer_allows() -> None:
    server, client = connect()
    for size in (1 << 30, 0, 1 << 20, 100, 1 << 16) * 50:
        client.update_settings({SettingCodes.HEADER_TABLE_SIZE: size})
        exchange(client, server)
        limit_settings(server, 20, 4096)
        assert server.encoder.header_table_size <= 4096
        assert len(server.encoder.table_size_changes) <= 2
    server.send_headers(1, [*RESPONSE, *((f"x-{number}", "y" * 500) for number in range(20))])
    entries = server.encoder.header_table.dynamic_entries
    assert sum(32 + len(name) + len(value) for name, value in entries) <= 4096
    server.send_headers(1, TRAILERS, end_stream=True)
    assert isinstance(exchange(server, client)[-1], h2.events.StreamEnded)


def test_stream_is_closed_when_both_sides_have_ended_it() -> None:
    server, client = connect()
    assert not is_closed(server, 1)
    server.send_headers(1, RESPONSE)
    server.send_headers(1, TRAILERS, end_stream=True)
    assert not is_closed(server, 1)  # the request has not ended
    client.end_stream(1)
    exchange(client, server)
    assert is_closed(server, 1)


@pytest.mark.parametrize("end", ["server", "client"])
def test_stream_is_closed_when_either_side_has_reset_it(end: str) -> None:
    server, client = connect()
    {"server": server, "client": client}[end].reset_stream(1)
    exchange(client, server)
    assert is_closed(server, 1)


def test_stream_stays_closed_when_others_follow() -> None:
    server, client = connect()
    client.reset_stream(1)
    for stream_id in (3, 5):
        client.send_headers(stream_id, REQUEST)
        exchange(client, server)
    assert is_closed(server, 1)
    assert send_window(server, 1) == 0
    assert not is_closed(server, 5)


def test_charged_bytes_are_taken_from_both_windows() -> None:
    server, _ = connect(streams=2)
    assert send_window(server, 1) == server.local_flow_control_window(1) == WINDOW
    charge_window(server, 1, 60_000)
    assert send_window(server, 1) == server.local_flow_control_window(1) == WINDOW - 60_000
    assert send_window(server, 3) == server.local_flow_control_window(3) == WINDOW - 60_000


def test_window_updates_add_to_what_is_left() -> None:
    server, client = connect(streams=2)
    charge_window(server, 1, 60_000)
    client.increment_flow_control_window(100_000)
    exchange(client, server)
    assert send_window(server, 1) == WINDOW - 60_000
    assert send_window(server, 3) == WINDOW
    client.increment_flow_control_window(1000, 1)
    exchange(client, server)
    assert send_window(server, 1) == WINDOW - 59_000


def test_smaller_initial_window_may_leave_none() -> None:
    server, client = connect()
    charge_window(server, 1, 60_000)
    for size, left in ((100, 0), (60_000, 0), (60_001, 1)):
        client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})
        exchange(client, server)
        assert send_window(server, 1) == left


def test_h2_refuses_data_beyond_the_charged_window() -> None:
    server, _ = connect()
    server.send_headers(1, RESPONSE)
    charge_window(server, 1, WINDOW - 10)
    server.send_data(1, bytes(10))
    assert send_window(server, 1) == 0
    with pytest.raises(h2.exceptions.FlowControlError):
        server.send_data(1, b"x")


def test_closed_stream_has_no_window() -> None:
    server, client = connect()
    client.reset_stream(1)
    exchange(client, server)
    assert send_window(server, 1) == 0
    assert send_window(server, 99) == 0


def test_trailers_follow_data_that_h2_has_not_seen() -> None:
    server, client = connect()
    server.send_headers(1, RESPONSE)
    sent = server.data_to_send() + data_frame(1, b"data")
    charge_window(server, 1, 4)
    server.send_headers(1, TRAILERS, end_stream=True)
    events = client.receive_data(sent + server.data_to_send())
    assert [type(event) for event in events] == [
        h2.events.ResponseReceived,
        h2.events.DataReceived,
        h2.events.TrailersReceived,
        h2.events.StreamEnded,
    ]
