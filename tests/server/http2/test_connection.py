"""A connection's streams, flow control and end."""

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

from infeed.http2.keepalive import SERVER_PING_INTERVAL_SECONDS, SERVER_PING_TIMEOUT_SECONDS
from infeed_server.http2.connection import Connection
from infeed_server.http2.protocol import MAX_CONCURRENT_STREAMS
from infeed_server.http2.stream import Stream, StreamClosedError

RESPONSE = [(":status", "200")]
TRAILERS = [("grpc-status", "0")]
INITIAL_WINDOW = SettingCodes.INITIAL_WINDOW_SIZE
FRAME_SIZE = SettingCodes.MAX_FRAME_SIZE
PEER_PING = b"\0\0\x08\6\0\0\0\0\0infeed!!"
PEER_PING_REPLY = b"\0\0\x08\6\1\0\0\0\0infeed!!"
GOAWAY_HEADER = b"\0\0\x08\7\0\0\0\0\0"


def respond(stream: Stream, *buffers: bytes) -> None:
    stream.send_headers(RESPONSE)
    stream.send(buffers)
    stream.send_headers(TRAILERS, end=True)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {INITIAL_WINDOW: 1},
        {INITIAL_WINDOW: 1000},
        {INITIAL_WINDOW: (1 << 31) - 1, FRAME_SIZE: (1 << 24) - 1},
    ],
)
def test_response_fits_any_window_and_frame_size(
    serve: Any, background: Any, settings: Any
) -> None:
    server, peer = serve(settings)
    buffers = [os.urandom(size) for size in (1, 5, 100, *((100_000,) if not settings else ()))]
    stream_id = peer.open(end=True)
    sending = background(respond, server.stream(), *buffers)
    whole = b"".join(buffers)
    assert peer.receive(stream_id, len(whole)) == whole
    peer.expect(h2.events.StreamEnded, stream_id=stream_id)
    sending.result()


def test_frames_are_as_large_as_the_peer_allows(serve: Any, background: Any) -> None:
    server, peer = serve({INITIAL_WINDOW: 1 << 24, FRAME_SIZE: 1 << 20})
    peer.grow_window(1 << 24)
    stream_id = peer.open(end=True)
    data = os.urandom(5 << 20)
    sending = background(respond, server.stream(), data)
    sizes, received = [], b""
    while len(received) < len(data):
        event = peer.expect(h2.events.DataReceived, stream_id=stream_id)
        sizes.append(len(event.data))
        received += event.data
    assert received == data
    assert sizes == [1 << 20] * 5
    sending.result()


def test_negative_window_blocks_the_send_until_it_grows(serve: Any, background: Any) -> None:
    server, peer = serve({INITIAL_WINDOW: 30_000})
    stream_id = peer.open(end=True)
    data = os.urandom(60_000)
    sending = background(respond, server.stream(), data)
    received = b""
    while len(received) < 30_000:
        received += peer.expect(h2.events.DataReceived).data
    peer.update_settings(initial_window_size=100)  # 29,900 less than was received by now
    peer.expect(h2.events.SettingsAcknowledged)
    peer.expect(h2.events.SettingsAcknowledged)
    peer.grow_window(29_900, stream_id)
    peer.h2.ping(b"12345678")
    peer.flush()
    peer.expect(h2.events.PingAckReceived)
    assert not peer.has(h2.events.DataReceived)
    assert not sending.is_done
    peer.update_settings(initial_window_size=50_000)  # opens the window, without WINDOW_UPDATE
    while len(received) < len(data):
        received += peer.expect(h2.events.DataReceived).data
    assert received == data
    peer.expect(h2.events.StreamEnded)
    sending.result()


def test_streams_share_the_connection_window(serve: Any, background: Any) -> None:
    server, peer = serve({INITIAL_WINDOW: 20_000})
    stream_ids = [peer.open(end=True) for _ in range(8)]
    data = {stream_id: os.urandom(50_000) for stream_id in stream_ids}
    streams = [server.stream() for _ in stream_ids]
    sending = [background(respond, stream, data[stream.stream_id]) for stream in streams]
    received = dict.fromkeys(stream_ids, b"")
    while any(len(received[stream_id]) < 50_000 for stream_id in stream_ids):
        event = peer.expect(h2.events.DataReceived)
        received[event.stream_id] += event.data
        peer.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        peer.flush()
    assert received == data
    for each in sending:
        each.result()


def test_stream_with_a_closed_window_does_not_block_others(served: Any, background: Any) -> None:
    server, peer = served
    peer.update_settings(initial_window_size=0)
    waiting = peer.open(end=True)
    held = background(respond, server.stream(), b"held")
    peer.expect(h2.events.ResponseReceived, stream_id=waiting)
    peer.update_settings(initial_window_size=10)
    peer.h2.increment_flow_control_window(10, waiting)
    other = peer.open(end=True)
    background(respond, server.stream(), b"other").result()
    assert peer.receive(other, 5) == b"other"
    assert peer.receive(waiting, 4) == b"held"
    held.result()


def test_ping_during_a_blocked_send_is_answered(
    serve: Any, background: Any, eventually: Any
) -> None:
    server, peer = serve({INITIAL_WINDOW: 1 << 24})
    peer.grow_window(1 << 24)
    stream_id = peer.open(end=True)
    stream = server.stream()
    stream.send_headers(RESPONSE)
    sending = background(stream.send, [bytes(1 << 25)])  # more than the window
    eventually(lambda: not server.socket.is_writable(), "the sockets are full")
    peer.h2.ping(b"infeed!!")
    peer.flush()
    peer.expect(h2.events.PingAckReceived)  # while the rest of the batch waits for the window
    assert not sending.is_done
    peer.reset(stream_id)
    with pytest.raises(StreamClosedError):
        sending.result()


def test_reset_during_a_send_closes_only_that_stream(
    serve: Any, background: Any, eventually: Any
) -> None:
    server, peer = serve({INITIAL_WINDOW: 1 << 24})
    peer.grow_window(1 << 28)
    stream_id = peer.open(end=True)
    stream = server.stream()
    stream.send_headers(RESPONSE)
    sending = background(lambda: [stream.send([bytes(1 << 24)]) for _ in range(9)])
    eventually(lambda: not server.socket.is_writable(), "the sockets are full")
    peer.reset(stream_id)
    other = peer.open(end=True)
    responding = background(lambda: respond(server.stream(), b"well"))
    assert peer.receive(other, 4) == b"well"
    responding.result()
    with pytest.raises(StreamClosedError):
        sending.result()


@pytest.mark.parametrize("how", ["close", "abort", "shutdown"])
def test_connection_lost_during_sends_closes_all_streams(
    serve: Any, background: Any, eventually: Any, how: str
) -> None:
    server, peer = serve({INITIAL_WINDOW: 1 << 24})
    peer.grow_window(1 << 28)
    for _ in range(3):
        peer.open(end=True)
    streams = [server.stream() for _ in range(3)]
    streams[0].send_headers(RESPONSE)
    sending = [background(stream.send, [bytes(1 << 25)]) for stream in streams]
    eventually(lambda: not server.socket.is_writable(), "the sockets are full")
    if how == "close":
        peer.socket.close()
    elif how == "abort":
        server.connection.abort()
    else:
        peer.socket.shutdown(socket.SHUT_WR)
    assert server.ended()
    for stream, each in zip(streams, sending, strict=True):
        with pytest.raises(StreamClosedError):
            each.result()
        assert stream.closed
    server.connection.abort()
    server.connection.drain()


def test_send_timeout_ends_the_connection(serve: Any, background: Any) -> None:
    server, peer = serve({INITIAL_WINDOW: 1 << 30}, send_timeout=0.1)
    peer.grow_window(1 << 30)
    peer.open(end=True)
    sending = background(server.stream().send, [bytes(1 << 27)])
    with pytest.raises(StreamClosedError):
        sending.result()
    assert server.ended()


INTERVAL, TIMEOUT = SERVER_PING_INTERVAL_SECONDS, SERVER_PING_TIMEOUT_SECONDS
PING_REQUEST = b"\0\0\x08\6\0\0\0\0\0infeed??"
PING_REPLY = b"\0\0\x08\6\1\0\0\0\0infeed??"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def request_frame(stream_id: int, flags: int = 5) -> bytes:
    """Encodes a request's HEADERS frame; by default it ends the request."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/s/m"), (":authority", "s")]
    request = Encoder().encode(fields, huffman=False)
    return len(request).to_bytes(3, "big") + struct.pack(">BBI", 1, flags, stream_id) + request


def test_silent_peer_is_pinged_and_then_lost(scripted_socket: Any) -> None:
    silent = TimeoutError
    sock = scripted_socket(
        PREFACE, silent, PING_REPLY, silent, PING_REPLY, silent, silent, PING_REPLY
    )
    Connection(sock, "peer", lambda stream: None).run()
    assert sock.timeouts == [INTERVAL, INTERVAL, TIMEOUT, INTERVAL, TIMEOUT, INTERVAL, TIMEOUT]
    assert sock.sent.count(PING_REQUEST) == 3


def test_ping_timeout_is_extended_while_a_batch_is_sent(
    scripted_socket: Any, background: Any
) -> None:
    streams: list[Stream] = []
    calls: list[Any] = []
    is_sent, may_end = threading.Event(), threading.Event()

    class SlowSocket(scripted_socket):  # type: ignore[misc]
        def send(self, buffers: Any) -> None:
            if streams and threading.current_thread() is not reader:
                is_sent.set()
                assert may_end.wait(60)
            super().send(buffers)

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
    sock = SlowSocket(PREFACE, request_frame(1), begin, silent, silent, end, silent, PING_REPLY)
    Connection(sock, "peer", streams.append).run()
    # Timeouts during the send are ignored; the first one after it ends the connection.
    assert sock.timeouts == [INTERVAL, INTERVAL, INTERVAL, TIMEOUT, TIMEOUT, TIMEOUT, TIMEOUT]
    assert sock.sent.count(PING_REQUEST) == 1


def test_ping_during_a_send_is_answered_after_it(scripted_socket: Any, background: Any) -> None:
    """By the sending thread, without any further frame of the stream."""
    streams: list[Stream] = []
    calls: list[Any] = []
    is_sent, may_end = threading.Event(), threading.Event()

    class SlowSocket(scripted_socket):  # type: ignore[misc]
        def send(self, buffers: Any) -> None:
            if streams and threading.current_thread() is not reader:
                is_sent.set()
                assert may_end.wait(60)
            super().send(buffers)

    def begin() -> bytes:
        calls.append(background(streams[0].send, [bytes(100)]))
        assert is_sent.wait(60)
        return PEER_PING

    def end() -> bytes:
        assert PEER_PING_REPLY not in sock.sent
        may_end.set()
        calls[0].result()
        assert PEER_PING_REPLY in sock.sent
        return b""

    reader = threading.current_thread()
    sock = SlowSocket(PREFACE, request_frame(1), begin, end)
    Connection(sock, "peer", streams.append).run()
    assert may_end.is_set()


def test_partly_sent_batch_ends_the_connection(scripted_socket: Any) -> None:
    """Else the next frame, of another stream, would be read as the rest of the batch."""
    aborts: list[int] = []

    class PartialSocket(scripted_socket):  # type: ignore[misc]
        def send(self, buffers: Any) -> None:
            if any(len(piece) == 100 for piece in buffers):
                raise TimeoutError
            super().send(buffers)

        def abort(self) -> None:
            aborts.append(1)

    def accept(stream: Stream) -> None:
        with pytest.raises(StreamClosedError):
            stream.send([bytes(100)])
        assert aborts == [1]

    Connection(PartialSocket(PREFACE, request_frame(1)), "peer", accept).run()
    assert aborts == [1, 1]


@pytest.mark.parametrize("how", ["close", "abort"])
def test_send_blocked_on_a_window_ends_with_the_connection(
    serve: Any, background: Any, how: str
) -> None:
    server, peer = serve({INITIAL_WINDOW: 0})
    stream_id = peer.open(end=True)
    stream = server.stream()
    sending = background(respond, stream, b"held")
    peer.expect(h2.events.ResponseReceived, stream_id=stream_id)
    if how == "close":
        peer.socket.close()
    else:
        server.connection.abort()
    with pytest.raises(StreamClosedError):
        sending.result()


def test_no_data_follows_trailers_of_another_thread(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the deadline of a call passes while its handler sends."""
    server, peer = served
    peer.open()
    stream = server.stream()
    stream.send_headers(RESPONSE)
    flush = server.connection._flush

    def send_late() -> None:
        monkeypatch.undo()
        with pytest.raises(StreamClosedError):
            stream.send([b"late"])
        flush()

    monkeypatch.setattr(server.connection, "_flush", send_late)
    stream.send_headers([("grpc-status", "4")], end=True)
    peer.expect(h2.events.StreamEnded)
    assert not peer.has(h2.events.DataReceived)


def test_stream_whose_trailers_cannot_be_sent_is_closed(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, peer = served
    peer.open()
    stream = server.stream()
    closed: list[bool] = []
    stream.add_close_callback(lambda: closed.append(True))

    def fail() -> None:
        raise ConnectionResetError

    monkeypatch.setattr(server.connection, "_flush", fail)
    with pytest.raises(StreamClosedError):
        stream.send_headers([(":status", "200"), ("grpc-status", "0")], end=True)
    assert closed == [True]


def test_response_to_a_just_reset_stream_raises(scripted_socket: Any) -> None:
    responded: list[Stream] = []

    def accept(stream: Stream) -> None:
        # h2 has processed a reset, the stream has not.
        connection._protocol.reset_stream(stream.stream_id, 8)
        assert not stream.closed
        for end in (False, True):
            with pytest.raises(StreamClosedError):
                stream.send_headers(RESPONSE, end=end)
        responded.append(stream)

    connection = Connection(scripted_socket(PREFACE + request_frame(1)), "peer", accept)
    connection.run()
    assert len(responded) == 1


def test_stream_beyond_the_limit_is_refused_alone(scripted_socket: Any) -> None:
    streams: list[Stream] = []
    refused: list[str] = []

    def accept(stream: Stream) -> None:
        stream.admit(authenticated=True)
        streams.append(stream)

    last = 2 * MAX_CONCURRENT_STREAMS + 1
    requests = [request_frame(stream_id) for stream_id in range(1, last + 1, 2)]

    def end_first() -> bytes:
        streams[0].send_headers(RESPONSE, end=True)
        return request_frame(last + 2)

    sock = scripted_socket(PREFACE, *requests[:300], b"".join(requests[300:]), end_first)
    Connection(sock, "peer", accept, on_refused=refused.append).run()
    opened = [stream.stream_id for stream in streams]
    assert opened == [*range(1, last, 2), last + 2]
    assert b"\0\0\4\3\0" + struct.pack(">II", last, 7) in sock.sent  # REFUSED_STREAM
    assert b"\0\0\x08\7\0" not in sock.sent  # no GOAWAY
    assert refused == ["streams"]


def test_settings_are_sent_before_the_peer_sends(scripted_socket: Any) -> None:
    sent: list[bytes] = []

    def end() -> bytes:
        sent.append(bytes(sock.sent))
        return b""

    sock = scripted_socket(end)
    Connection(sock, "peer", lambda stream: None).run()
    assert sent[0][3:5] == b"\4\0"


def test_drain_sends_goaway_at_once(scripted_socket: Any) -> None:
    sent: list[bytes] = []

    def drain() -> bytes:
        connection.drain()
        sent.append(bytes(sock.sent))  # before any other event sends
        return b""

    sock = scripted_socket(PREFACE, drain)
    connection = Connection(sock, "peer", lambda stream: None)
    connection.run()
    assert sent[0].count(b"\0\0\x08\7\0\0\0\0\0") == 1


def test_partly_sent_goaway_ends_the_connection(scripted_socket: Any) -> None:
    """Part of a frame may have been sent: no other can follow it."""
    aborts: list[int] = []

    class FullSocket(scripted_socket):  # type: ignore[misc]
        is_full = False

        def send(self, buffers: Any) -> None:
            if self.is_full:
                raise TimeoutError
            super().send(buffers)

        def abort(self) -> None:
            aborts.append(1)

    def drain() -> bytes:
        sock.is_full = True
        connection.drain()
        assert aborts == [1]
        return b""

    sock = FullSocket(PREFACE, drain)
    connection = Connection(sock, "peer", lambda stream: None)
    connection.run()
    assert aborts == [1, 1]


def test_socket_is_closed_under_the_send_lock(scripted_socket: Any) -> None:
    """Afterwards its descriptor may belong to another file."""
    alone: list[bool] = []

    class ClosingSocket(scripted_socket):  # type: ignore[misc]
        def close(self) -> None:
            alone.append(connection._send_lock.locked())

    connection = Connection(ClosingSocket(PREFACE), "peer", lambda stream: None)
    connection.run()
    assert alone == [True]


def test_open_streams_outlive_a_drain(served: Any) -> None:
    server, peer = served
    stream_id = peer.open()
    stream = server.stream()
    stream.send_headers(RESPONSE)
    server.connection.drain()
    server.connection.drain()
    late = peer.open()
    peer.send_data(late, b"more")
    goaway = peer.expect(h2.events.ConnectionTerminated)
    assert (goaway.error_code, goaway.last_stream_id) == (0, stream_id)
    assert not peer.has(h2.events.ConnectionTerminated)
    assert peer.expect(h2.events.StreamReset).error_code == ErrorCodes.REFUSED_STREAM
    peer.send_data(stream_id, b"request", end=True)
    assert stream.receive() == b"request"
    stream.send([b"answer"])
    stream.send_headers(TRAILERS, end=True)
    assert peer.receive(stream_id, 6) == b"answer"
    peer.expect(h2.events.StreamEnded, stream_id=stream_id)
    assert server.streams.empty()


def test_open_streams_outlive_the_peers_goaway(served: Any) -> None:
    server, peer = served
    stream_id = peer.open(end=True)
    stream = server.stream()
    peer.send_raw(b"\0\0\x08\7\0\0\0\0\0" + bytes(8))
    peer.h2.ping(b"12345678")
    peer.flush()
    peer.expect(h2.events.PingAckReceived)
    respond(stream, b"still")
    assert peer.receive(stream_id, 5) == b"still"
    peer.expect(h2.events.StreamEnded, stream_id=stream_id)


def fill(sock: socket.socket) -> int:
    """Sends until the socket buffers are full; returns the number of bytes."""
    count = 0
    for size in (1 << 10, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                count += sock.send(bytes(size), socket.MSG_DONTWAIT)
    return count


@pytest.mark.parametrize("reads", ["nothing", "its settings"])
def test_drain_does_not_block_on_a_full_socket(serve: Any, reads: str) -> None:
    # A drain that waited would end the connection after `send_timeout`.
    # On a Unix socket, because TCP buffers grow some time after they were full.
    server, peer = serve(send_timeout=0.5, unix=True)
    if reads == "its settings":
        peer.expect(h2.events.RemoteSettingsChanged)
    else:
        assert peer.socket.recv(1, socket.MSG_PEEK)  # the server has sent its settings
    # Raw bytes, to fill the last byte of the buffers while no thread sends.
    filler_bytes = fill(server.socket._socket)
    server.connection.drain()
    received = bytearray()
    while len(received) < filler_bytes:
        received += peer.socket.recv(1 << 20)
    peer.send_raw(PEER_PING)
    while GOAWAY_HEADER not in received:
        data = peer.socket.recv(1 << 20)
        assert data, "the connection was ended"
        received += data


def test_unread_data_is_acknowledged_when_its_stream_ends(served: Any) -> None:
    server, peer = served
    for _ in range(20):  # in total, many times the connection's window
        stream_id = peer.open()
        stream = server.stream()
        left = 40_000
        while left:
            window = min(left, peer.h2.local_flow_control_window(stream_id), 16_000)
            if window:
                peer.send_data(stream_id, bytes(window))
                left -= window
            else:
                assert peer.read()
        stream.send_headers([*RESPONSE, *TRAILERS], end=True)
        peer.expect(h2.events.StreamEnded, stream_id=stream_id)


def test_data_after_the_response_is_acknowledged(scripted_socket: Any) -> None:
    """In the same bytes as the request: h2 processes it before the response."""
    responded: list[Stream] = []

    def accept(stream: Stream) -> None:
        stream.send_headers([*RESPONSE, *TRAILERS], end=True)
        responded.append(stream)

    data = (10_000).to_bytes(3, "big") + bytes(2)
    requests = [
        request_frame(stream_id, 4) + data + stream_id.to_bytes(4, "big") + bytes(10_000)
        for stream_id in range(1, 41, 2)  # in total, many times the connection's window
    ]
    Connection(scripted_socket(PREFACE, *requests), "peer", accept).run()
    assert len(responded) == 20


def test_unread_data_is_acknowledged_at_once(scripted_socket: Any) -> None:
    """Without waiting for other frames, since other streams may need the window."""
    streams: list[Stream] = []

    def end() -> bytes:
        streams[0].send_headers([*RESPONSE, *TRAILERS], end=True)
        update = b"\0\0\4\x08\0\0\0\0\0" + (40_000).to_bytes(4, "big")
        assert update in sock.sent
        return b""

    data = b"".join((10_000).to_bytes(3, "big") + bytes(5) + b"\1" + bytes(10_000) for _ in "1234")
    sock = scripted_socket(PREFACE, request_frame(1, 4), data, end)
    Connection(sock, "peer", streams.append).run()
    assert len(streams) == 1
