"""A connection's streams, its windows and its end, with peers of all kinds."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from typing import Any

import h2.events
import h2.exceptions
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hpack import Encoder

from infeed.keepalive import SERVER_PATIENCE_SECONDS, SERVER_PING_SECONDS
from infeed_server.http2.connection import Connection
from infeed_server.http2.machine import MAX_STREAMS
from infeed_server.http2.stream import GoneError, Stream

ANSWER = [(":status", "200")]
TRAILERS = [("grpc-status", "0")]
WINDOW = SettingCodes.INITIAL_WINDOW_SIZE
FRAME = SettingCodes.MAX_FRAME_SIZE
PING_FRAME = b"\0\0\x08\6\0\0\0\0\0infeed!!"
PONG_FRAME = b"\0\0\x08\6\1\0\0\0\0infeed!!"
GOAWAY = b"\0\0\x08\7\0\0\0\0\0"
"""The head of the frame."""


def answer(stream: Stream, *pieces: bytes) -> None:
    stream.send_headers(ANSWER)
    stream.send(pieces)
    stream.send_headers(TRAILERS, end=True)


@pytest.mark.parametrize(
    "settings", [{}, {WINDOW: 1}, {WINDOW: 1000}, {WINDOW: (1 << 31) - 1, FRAME: (1 << 24) - 1}]
)
def test_whatever_the_peer_has_room_for(serve: Any, background: Any, settings: Any) -> None:
    connection, peer = serve(settings)
    pieces = [os.urandom(size) for size in (1, 5, 100, *((100_000,) if not settings else ()))]
    number = peer.open(end=True)
    sending = background(answer, connection.stream(), *pieces)
    whole = b"".join(pieces)
    assert peer.receive(number, len(whole)) == whole
    peer.expect(h2.events.StreamEnded, stream_id=number)
    sending.result()


def test_large_frames_for_a_peer_that_takes_them(serve: Any, background: Any) -> None:
    connection, peer = serve({WINDOW: 1 << 24, FRAME: 1 << 20})
    peer.window(1 << 24)
    number = peer.open(end=True)
    data = os.urandom(5 << 20)
    sending = background(answer, connection.stream(), data)
    sizes, got = [], b""
    while len(got) < len(data):
        event = peer.expect(h2.events.DataReceived, stream_id=number)
        sizes.append(len(event.data))
        got += event.data
    assert got == data
    assert sizes == [1 << 20] * 5
    sending.result()


def test_windows_that_shrink_below_zero(serve: Any, background: Any) -> None:
    connection, peer = serve({WINDOW: 30_000})
    number = peer.open(end=True)
    data = os.urandom(60_000)
    sending = background(answer, connection.stream(), data)
    got = b""
    while len(got) < 30_000:
        got += peer.expect(h2.events.DataReceived).data
    peer.settings(initial_window_size=100)  # 29,900 too many have come by now
    peer.expect(h2.events.SettingsAcknowledged)
    peer.expect(h2.events.SettingsAcknowledged)
    peer.window(29_900, number)
    peer.machine.ping(b"12345678")
    peer.flush()
    peer.expect(h2.events.PingAckReceived)
    assert not peer.has(h2.events.DataReceived)
    assert not sending.is_done
    peer.settings(initial_window_size=50_000)  # opens it, without any window update
    while len(got) < len(data):
        got += peer.expect(h2.events.DataReceived).data
    assert got == data
    peer.expect(h2.events.StreamEnded)
    sending.result()


def test_streams_share_the_connection(serve: Any, background: Any) -> None:
    connection, peer = serve({WINDOW: 20_000})
    numbers = [peer.open(end=True) for _ in range(8)]
    data = {number: os.urandom(50_000) for number in numbers}
    streams = [connection.stream() for _ in numbers]
    sending = [background(answer, stream, data[stream.number]) for stream in streams]
    got = dict.fromkeys(numbers, b"")
    while any(len(got[number]) < 50_000 for number in numbers):
        event = peer.expect(h2.events.DataReceived)
        got[event.stream_id] += event.data
        peer.machine.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        peer.flush()
    assert got == data
    for each in sending:
        each.result()


def test_a_stream_whose_window_is_shut_holds_no_other_up(served: Any, background: Any) -> None:
    connection, peer = served
    peer.settings(initial_window_size=0)
    waiting = peer.open(end=True)
    held = background(answer, connection.stream(), b"held")
    peer.expect(h2.events.ResponseReceived, stream_id=waiting)
    peer.settings(initial_window_size=10)
    peer.machine.increment_flow_control_window(10, waiting)
    other = peer.open(end=True)
    background(answer, connection.stream(), b"other").result()
    assert peer.receive(other, 5) == b"other"
    assert peer.receive(waiting, 4) == b"held"
    held.result()


def test_what_is_said_while_a_batch_goes_out_is_not_forgotten(
    serve: Any, background: Any, eventually: Any
) -> None:
    connection, peer = serve({WINDOW: 1 << 24})
    peer.window(1 << 24)
    number = peer.open(end=True)
    stream = connection.stream()
    stream.send_headers(ANSWER)
    sending = background(stream.send, [bytes(1 << 25)])  # more than there is room for
    eventually(lambda: not connection.wire.is_writable(), "the sockets are full")
    peer.machine.ping(b"infeed!!")
    peer.flush()
    peer.expect(h2.events.PingAckReceived)  # while the rest of the batch waits for room
    assert not sending.is_done
    peer.reset(number)
    with pytest.raises(GoneError):
        sending.result()


def test_a_peer_that_resets_in_mid_batch(serve: Any, background: Any, eventually: Any) -> None:
    connection, peer = serve({WINDOW: 1 << 24})
    peer.window(1 << 28)
    number = peer.open(end=True)
    stream = connection.stream()
    stream.send_headers(ANSWER)
    sending = background(lambda: [stream.send([bytes(1 << 24)]) for _ in range(9)])
    eventually(lambda: not connection.wire.is_writable(), "the sockets are full")
    peer.reset(number)
    other = peer.open(end=True)
    answering = background(lambda: answer(connection.stream(), b"well"))
    assert peer.receive(other, 4) == b"well"
    answering.result()
    with pytest.raises(GoneError):
        sending.result()


@pytest.mark.parametrize("how", ["close", "cut", "shutdown"])
def test_a_connection_that_is_lost_in_mid_batch(
    serve: Any, background: Any, eventually: Any, how: str
) -> None:
    connection, peer = serve({WINDOW: 1 << 24})
    peer.window(1 << 28)
    for _ in range(3):
        peer.open(end=True)
    streams = [connection.stream() for _ in range(3)]
    streams[0].send_headers(ANSWER)
    sending = [background(stream.send, [bytes(1 << 25)]) for stream in streams]
    eventually(lambda: not connection.wire.is_writable(), "the sockets are full")
    if how == "close":
        peer.socket.close()
    elif how == "cut":
        connection.connection.cut()
    else:
        peer.socket.shutdown(socket.SHUT_WR)
    assert connection.ended()
    for stream, each in zip(streams, sending, strict=True):
        with pytest.raises(GoneError):
            each.result()
        assert stream.over
    connection.connection.cut()
    connection.connection.drain()


def test_a_peer_that_takes_nothing_is_given_up(serve: Any, background: Any) -> None:
    connection, peer = serve({WINDOW: 1 << 30}, send_seconds=0.1)
    peer.window(1 << 30)
    peer.open(end=True)
    sending = background(connection.stream().send, [bytes(1 << 27)])
    with pytest.raises(GoneError):
        sending.result()
    assert connection.ended()


PING, PATIENCE = SERVER_PING_SECONDS, SERVER_PATIENCE_SECONDS
QUESTION = b"\0\0\x08\6\0\0\0\0\0infeed??"
ANSWERED = b"\0\0\x08\6\1\0\0\0\0infeed??"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def opened(number: int, flags: int = 5) -> bytes:
    """A request, as it travels; that is all of it, unless the flags say otherwise."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/s/m"), (":authority", "s")]
    request = Encoder().encode(fields, huffman=False)
    return len(request).to_bytes(3, "big") + struct.pack(">BBI", 1, flags, number) + request


def test_a_silent_peer_is_pinged_and_lost_when_it_does_not_answer(played_wire: Any) -> None:
    silent = TimeoutError
    wire = played_wire(PREFACE, silent, ANSWERED, silent, ANSWERED, silent, silent, ANSWERED)
    Connection(wire, "peer", lambda stream: None).run()
    assert wire.timeouts == [PING, PING, PATIENCE, PING, PATIENCE, PING, PATIENCE]
    assert wire.sent.count(QUESTION) == 3


def test_a_ping_behind_a_batch_that_is_being_sent_may_take_longer(
    played_wire: Any, background: Any
) -> None:
    streams: list[Stream] = []
    calls: list[Any] = []
    is_sent, may_end = threading.Event(), threading.Event()

    class Slow(played_wire):  # type: ignore[misc]
        def send(self, pieces: Any) -> None:
            if streams and threading.current_thread() is not reader:
                is_sent.set()
                assert may_end.wait(60)
            super().send(pieces)

    def begin() -> type[TimeoutError]:
        calls.append(background(streams[0].send, [bytes(100)]))
        assert is_sent.wait(60)
        return TimeoutError

    def end() -> type[TimeoutError]:
        may_end.set()
        calls[0].result()
        return TimeoutError

    reader = threading.current_thread()
    silent = TimeoutError
    wire = Slow(PREFACE, opened(1), begin, silent, silent, end, silent, ANSWERED)
    Connection(wire, "peer", streams.append).run()
    # While the batch is on its way each silence is waited through; the first one after ends it.
    assert wire.timeouts == [PING, PING, PING, PATIENCE, PATIENCE, PATIENCE, PATIENCE]
    assert wire.sent.count(QUESTION) == 1


def test_a_ping_that_comes_while_a_batch_goes_out_is_answered_behind_it(
    played_wire: Any, background: Any
) -> None:
    """By who sends, whatever the stream has to say next."""
    streams: list[Stream] = []
    calls: list[Any] = []
    is_sent, may_end = threading.Event(), threading.Event()

    class Slow(played_wire):  # type: ignore[misc]
        def send(self, pieces: Any) -> None:
            if streams and threading.current_thread() is not reader:
                is_sent.set()
                assert may_end.wait(60)
            super().send(pieces)

    def begin() -> bytes:
        calls.append(background(streams[0].send, [bytes(100)]))
        assert is_sent.wait(60)
        return PING_FRAME

    def end() -> bytes:
        assert PONG_FRAME not in wire.sent
        may_end.set()
        calls[0].result()
        assert PONG_FRAME in wire.sent
        return b""

    reader = threading.current_thread()
    wire = Slow(PREFACE, opened(1), begin, end)
    Connection(wire, "peer", streams.append).run()
    assert may_end.is_set()


def test_a_batch_that_goes_out_in_part_ends_the_connection(played_wire: Any) -> None:
    """Or the next frame, of another stream, would be taken for the rest of it."""
    cuts: list[int] = []

    class Partial(played_wire):  # type: ignore[misc]
        def send(self, pieces: Any) -> None:
            if any(len(piece) == 100 for piece in pieces):
                raise TimeoutError
            super().send(pieces)

        def cut(self) -> None:
            cuts.append(1)

    def accept(stream: Stream) -> None:
        with pytest.raises(GoneError):
            stream.send([bytes(100)])
        assert cuts == [1]

    Connection(Partial(PREFACE, opened(1)), "peer", accept).run()
    assert cuts == [1, 1]


@pytest.mark.parametrize("how", ["close", "cut"])
def test_who_waits_for_a_window_learns_that_the_connection_is_lost(
    serve: Any, background: Any, how: str
) -> None:
    connection, peer = serve({WINDOW: 0})
    number = peer.open(end=True)
    stream = connection.stream()
    sending = background(answer, stream, b"held")
    peer.expect(h2.events.ResponseReceived, stream_id=number)
    if how == "close":
        peer.socket.close()
    else:
        connection.connection.cut()
    with pytest.raises(GoneError):
        sending.result()


def test_an_answer_to_a_stream_that_is_known_to_be_reset_is_given_up(played_wire: Any) -> None:
    answered: list[Stream] = []

    def accept(stream: Stream) -> None:
        # The reset came in the same bytes: h2 knows of it, the stream not yet.
        assert not stream.over
        for end in (False, True):
            with pytest.raises(GoneError):
                stream.send_headers(ANSWER, end=end)
        answered.append(stream)

    reset = b"\0\0\4\3\0\0\0\0\1\0\0\0\x08"
    Connection(played_wire(PREFACE + opened(1) + reset), "peer", accept).run()
    assert len(answered) == 1


def test_more_streams_than_a_connection_may_have_end_it(played_wire: Any) -> None:
    streams: list[Stream] = []
    requests = b"".join(opened(number) for number in range(1, 2 * MAX_STREAMS + 2, 2))
    last = len(requests) - len(opened(1))
    wire = played_wire(PREFACE, requests[:last], requests[last:])
    Connection(wire, "peer", streams.append).run()
    assert len(streams) == MAX_STREAMS
    goaway = wire.sent[wire.sent.rindex(b"\0\0\x08\7\0") :]
    assert goaway[13:17] != bytes(4)  # an error


def test_a_drain_is_told_at_once(played_wire: Any) -> None:
    sent: list[bytes] = []

    def drain() -> bytes:
        connection.drain()
        sent.append(bytes(wire.sent))  # before anything else makes it send
        return b""

    wire = played_wire(PREFACE, drain)
    connection = Connection(wire, "peer", lambda stream: None)
    connection.run()
    assert sent[0].count(b"\0\0\x08\7\0\0\0\0\0") == 1


def test_a_drain_that_goes_out_in_part_ends_the_connection(played_wire: Any) -> None:
    """Half a frame may be on its way: nothing can follow it."""
    cuts: list[int] = []

    class Full(played_wire):  # type: ignore[misc]
        is_full = False

        def send(self, pieces: Any) -> None:
            if self.is_full:
                raise TimeoutError
            super().send(pieces)

        def cut(self) -> None:
            cuts.append(1)

    def drain() -> bytes:
        wire.is_full = True
        connection.drain()
        assert cuts == [1]
        return b""

    wire = Full(PREFACE, drain)
    connection = Connection(wire, "peer", lambda stream: None)
    connection.run()
    assert cuts == [1, 1]


def test_a_wire_is_closed_while_nobody_sends(played_wire: Any) -> None:
    """Its number may be that of another file from then on."""
    alone: list[bool] = []

    class Closing(played_wire):  # type: ignore[misc]
        def close(self) -> None:
            alone.append(connection._sending.locked())

    connection = Connection(Closing(PREFACE), "peer", lambda stream: None)
    connection.run()
    assert alone == [True]


def test_open_streams_outlive_a_drain(served: Any) -> None:
    connection, peer = served
    number = peer.open()
    stream = connection.stream()
    stream.send_headers(ANSWER)
    connection.connection.drain()
    connection.connection.drain()
    late = peer.open()
    peer.data(late, b"more")
    goaway = peer.expect(h2.events.ConnectionTerminated)
    assert (goaway.error_code, goaway.last_stream_id) == (0, number)
    assert not peer.has(h2.events.ConnectionTerminated)  # it is told once
    assert peer.expect(h2.events.StreamReset).error_code == ErrorCodes.REFUSED_STREAM
    peer.data(number, b"request", end=True)
    assert stream.receive() == b"request"
    stream.send([b"answer"])
    stream.send_headers(TRAILERS, end=True)
    assert peer.receive(number, 6) == b"answer"
    peer.expect(h2.events.StreamEnded, stream_id=number)
    assert connection.streams.empty()


def test_open_streams_outlive_the_peers_goaway(served: Any) -> None:
    connection, peer = served
    number = peer.open(end=True)
    stream = connection.stream()
    peer.raw(b"\0\0\x08\7\0\0\0\0\0" + bytes(8))
    peer.machine.ping(b"12345678")
    peer.flush()
    peer.expect(h2.events.PingAckReceived)
    answer(stream, b"still")
    assert peer.receive(number, 5) == b"still"
    peer.expect(h2.events.StreamEnded, stream_id=number)


def fill(one: socket.socket) -> int:
    """Sends to the last byte that the sockets take; how many those are."""
    count = 0
    for size in (1 << 10, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                count += one.send(bytes(size), socket.MSG_DONTWAIT)
    return count


@pytest.mark.parametrize("reads", ["nothing", "its settings"])
def test_a_drain_does_not_wait_for_a_peer_that_does_not_read(serve: Any, reads: str) -> None:
    # A drain that waited for room would give the peer up after `send_seconds`.
    # Over a Unix socket: TCP finds more room some time after it has said that there is none.
    connection, peer = serve(send_seconds=0.5, unix=True)
    if reads == "its settings":
        peer.expect(h2.events.RemoteSettingsChanged)
    else:
        assert peer.socket.recv(1, socket.MSG_PEEK)  # the server has sent what it says first
    # No frames, for the last byte of room is to be taken while no thread sends.
    junk = fill(connection.wire._socket)
    connection.connection.drain()
    got = bytearray()
    while len(got) < junk:
        got += peer.socket.recv(1 << 20)
    peer.raw(PING_FRAME)
    while GOAWAY not in got:
        data = peer.socket.recv(1 << 20)
        assert data, "the peer was given up"
        got += data


def test_data_that_nobody_took_is_given_back(served: Any) -> None:
    connection, peer = served
    for _ in range(20):  # in all, many times the connection's window
        number = peer.open()
        stream = connection.stream()
        left = 40_000
        while left:
            room = min(left, peer.machine.local_flow_control_window(number), 16_000)
            if room:
                peer.data(number, bytes(room))
                left -= room
            else:
                assert peer.read()
        stream.send_headers([*ANSWER, *TRAILERS], end=True)
        peer.expect(h2.events.StreamReset, stream_id=number)


def test_data_that_comes_behind_the_answer_is_given_back(played_wire: Any) -> None:
    """Of the same bytes as the request: h2 has taken it in before the answer."""
    answered: list[Stream] = []

    def accept(stream: Stream) -> None:
        stream.send_headers([*ANSWER, *TRAILERS], end=True)
        answered.append(stream)

    data = (10_000).to_bytes(3, "big") + bytes(2)
    requests = [
        opened(number, 4) + data + number.to_bytes(4, "big") + bytes(10_000)
        for number in range(1, 41, 2)  # in all, many times the connection's window
    ]
    Connection(played_wire(PREFACE, *requests), "peer", accept).run()
    assert len(answered) == 20


def test_data_that_nobody_took_is_given_back_at_once(played_wire: Any) -> None:
    """Whether or not there is anything else to say: the other streams may wait for room."""
    streams: list[Stream] = []

    def end() -> bytes:
        streams[0].send_headers([*ANSWER, *TRAILERS], end=True)
        update = b"\0\0\4\x08\0\0\0\0\0" + (40_000).to_bytes(4, "big")
        assert update in wire.sent
        return b""

    data = b"".join((10_000).to_bytes(3, "big") + bytes(5) + b"\1" + bytes(10_000) for _ in "1234")
    wire = played_wire(PREFACE, opened(1, 4), data, end)
    Connection(wire, "peer", streams.append).run()
    assert len(streams) == 1
