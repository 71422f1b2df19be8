"""Floods and invalid bytes: they end their own connection, and no other."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

import h2.events
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed_server.http2.connection import Connection
from infeed_server.http2.frame_budget import ADMITTED_RATE, STREAM_RATE, UNADMITTED_RATE
from infeed_server.http2.socket import ServerSocket
from infeed_server.http2.stream import Stream, StreamClosedError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
RESPONSE = [(":status", "200")]


def frame(kind: int, flags: int, stream_id: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream_id) + body


def headers(stream_id: int, *more: tuple[str, str], flags: int = 4) -> bytes:
    """Encodes HEADERS of a request that h2 would refuse to send."""
    from hpack import Encoder

    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/s/m"), (":authority", "s")]
    return frame(1, flags, stream_id, Encoder().encode([*fields, *more]))


def send_all(peer: Any, data: bytes) -> None:
    """Sends until the connection is closed."""
    with contextlib.suppress(OSError):
        peer.send_raw(data)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: s\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500),
        b"PRI * HTTP/2.0\r\n\r\nSN",
        bytes(1000),
        b"PR",
        b"",
    ],
)
def test_bytes_other_than_http2_end_the_connection(serve: Any, data: bytes) -> None:
    server, _ = serve()
    near, far = socket.socketpair()
    streams: list[Stream] = []
    with near:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        Connection(ServerSocket(far, 60), "peer", streams.append).run()
    assert streams == []
    assert server.thread.is_alive()


@pytest.mark.parametrize(
    "data",
    [
        frame(0, 0, 1, b"data without a stream"),
        frame(3, 0, 1, bytes(4)),  # a reset without a stream
        frame(4, 0, 0, b"short"),
        frame(4, 0, 0, struct.pack(">HI", SettingCodes.INITIAL_WINDOW_SIZE, 1 << 31)),
        frame(4, 0, 0, struct.pack(">HI", SettingCodes.MAX_FRAME_SIZE, 1)),
        frame(5, 4, 1, struct.pack(">I", 2)),  # PUSH_PROMISE
        frame(8, 0, 0, bytes(4)),
        frame(8, 0, 0, struct.pack(">I", (1 << 31) - 1)),
        frame(9, 4, 1, b"a continuation without headers"),
        b"\xff\xff\xff" + frame(0, 0, 1)[3:] + bytes(1 << 17),
        headers(2),
        headers(1) + headers(1),
        headers(1, *((f"x-{number}", "y" * 1000) for number in range(99))),
    ],
)
def test_invalid_frames_end_the_connection_with_an_error(served: Any, data: bytes) -> None:
    server, peer = served
    send_all(peer, data)
    peer.read_to_end()
    assert peer.expect(h2.events.ConnectionTerminated).error_code != ErrorCodes.NO_ERROR
    assert server.ended()
    assert server.streams.qsize() <= 1


def header_bomb(count: int) -> bytes:
    """Encodes a header of 4 KiB once, and repeats it with a byte each."""
    from hpack import Encoder

    encoder, large = Encoder(), ("x", "y" * 3900)
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/s/m"), (":authority", "s")]
    block = encoder.encode([*fields, large], huffman=False) + encoder.encode([large] * count)
    return frame(1, 4, 1, block)


def test_headers_that_expand_are_decoded_up_to_a_limit(serve: Any) -> None:
    server, peer = serve()
    peer.send_raw(header_bomb(20))  # 78 KiB
    assert not server.stream().has_all_headers
    server, peer = serve()
    send_all(peer, header_bomb(30))
    peer.read_to_end()
    assert server.ended()
    assert server.streams.empty()
    assert server.refused == ["flood"]


def test_endless_headers_end_the_connection(served: Any) -> None:
    server, peer = served
    send_all(peer, headers(1, flags=0) + frame(9, 0, 1, b"x" * 100) * 1000)
    peer.read_to_end()
    assert server.ended()


def test_data_beyond_the_window_ends_the_connection(served: Any) -> None:
    server, peer = served
    peer.open()
    stream = server.stream()
    send_all(peer, frame(0, 0, 1, bytes(16384)) * 5)
    peer.read_to_end()
    assert server.ended()
    with pytest.raises(StreamClosedError):
        stream.receive()


@pytest.mark.parametrize("data", [frame(6, 0, 0, bytes(8)), frame(4, 0, 0)])
def test_unread_replies_during_a_send_end_the_connection(
    serve: Any, background: Any, eventually: Any, data: bytes
) -> None:
    server, peer = serve({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 30})
    peer.grow_window(1 << 30)
    peer.open()
    sending = background(server.stream().send, [bytes(1 << 27)])
    eventually(lambda: not server.socket.is_writable(), "the sockets are full")
    for _ in range(100):
        send_all(peer, data * 1000)
    assert server.ended()
    with pytest.raises(StreamClosedError):
        sending.result()


def test_unread_replies_end_the_connection(serve: Any) -> None:
    server, peer = serve(send_timeout=0.1)
    for each in (peer.socket, server.socket._socket):  # else megabytes of replies fit
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
    peer.socket.settimeout(0.05)  # what is not sent now may be sent again in part
    while server.thread.is_alive():
        send_all(peer, frame(6, 0, 0, bytes(8)) * 1000)
    assert server.ended()


def test_too_many_settings_end_the_connection(served: Any) -> None:
    server, peer = served
    send_all(
        peer, b"".join(frame(4, 0, 0, struct.pack(">HI", code, 1)) for code in range(100, 200))
    )
    peer.read_to_end()
    assert server.ended()


def test_header_table_of_the_encoder_stays_small(served: Any) -> None:
    server, peer = served
    for size in (1 << 30, 0, 1 << 20, 100, 1 << 16) * 50:
        peer.update_settings(header_table_size=size)
    peer.h2.decoder.max_allowed_table_size = 1 << 30
    stream_id = peer.open(end=True)
    stream = server.stream()
    protocol = server.connection._protocol._h2
    assert protocol.encoder.header_table_size <= 1 << 12
    assert len(protocol.encoder.table_size_changes) <= 2
    stream.send_headers([*RESPONSE, ("grpc-status", "0")], end=True)
    peer.expect(h2.events.StreamEnded, stream_id=stream_id)


FLOODS = {
    "PING": frame(6, 0, 0, bytes(8)),
    "PING replies": frame(6, 1, 0, bytes(8)),
    "SETTINGS": frame(4, 0, 0),
    "SETTINGS replies": frame(4, 1, 0),
    "PRIORITY": frame(2, 0, 7, bytes(5)),
    "WINDOW_UPDATE of the connection": frame(8, 0, 0, struct.pack(">I", 1)),
    "WINDOW_UPDATE of a stream": frame(8, 0, 1, struct.pack(">I", 1)),
    "WINDOW_UPDATE of a closed stream": frame(8, 0, 1, struct.pack(">I", 1)),
    "empty DATA": frame(0, 0, 1),
    "padded DATA": frame(0, 8, 1, b"\0"),
    "an unknown type": frame(0xBE, 0, 0),
    "RST_STREAM": frame(3, 0, 1, bytes(4)),
    "GOAWAY": frame(7, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("admitted", [False, True])
def test_flood_ends_its_connection(served: Any, kind: str, admitted: bool) -> None:
    server, peer = served
    server.admits = admitted
    peer.open()
    if "closed" in kind:
        peer.reset(1)
    limit = ADMITTED_RATE.burst + STREAM_RATE.burst if admitted else UNADMITTED_RATE.burst
    send_all(peer, FLOODS[kind] * int(4 * limit))  # some are allowed meanwhile
    peer.read_to_end()
    error = peer.expect(h2.events.ConnectionTerminated)
    assert error.error_code == ErrorCodes.ENHANCE_YOUR_CALM
    assert server.ended()
    assert server.refused == ["flood"]


def test_flood_of_requests_and_resets_ends_the_connection(served: Any) -> None:
    server, peer = served
    for stream_id in range(1, 2 * 1200, 2):
        send_all(peer, headers(stream_id) + frame(3, 0, stream_id, bytes(4)))
    peer.read_to_end()
    assert server.ended()
    assert server.refused == ["flood"]


def test_flood_of_empty_continuations_ends_the_connection(served: Any) -> None:
    server, peer = served
    for stream_id in range(1, 2 * 300, 2):
        send_all(peer, headers(stream_id, flags=0) + frame(9, 0, stream_id) * 40)
        send_all(peer, frame(9, 4, stream_id))
    peer.read_to_end()
    assert server.ended()
    assert server.refused == ["flood"]


def test_frame_that_is_sent_byte_by_byte_ends_the_connection(scripted_socket: Any) -> None:
    refused: list[str] = []
    parts = [b"\0\x40\0\xbe\0\0\0\0\0", *[b"x"] * 1000]
    sock = scripted_socket(PREFACE + frame(4, 0, 0), *parts)
    Connection(sock, "peer", lambda stream: None, on_refused=refused.append).run()
    assert refused == ["flood"]
    assert len(sock._script) > 600


def test_clients_that_cancel_calls_may_continue(served: Any) -> None:
    server, peer = served
    for _ in range(300):
        peer.reset(peer.open())
    peer.open(end=True)
    streams = [server.stream() for _ in range(301)]
    streams[-1].send_headers(RESPONSE, end=True)
    peer.expect(h2.events.ResponseReceived)


def test_undecodable_headers_end_the_connection_with_their_code(served: Any) -> None:
    server, peer = served
    send_all(peer, frame(1, 4, 1, b"\xff\xff\xff\xff\xff"))
    peer.read_to_end()
    error = peer.expect(h2.events.ConnectionTerminated)
    assert error.error_code == ErrorCodes.COMPRESSION_ERROR
    assert server.ended()


@pytest.mark.parametrize(
    "field",
    [("UPPER", "x"), ("a b", "x"), ("x", "a\r\nb"), (":path", "twice"), ("connection", "x")],
)
def test_malformed_headers_fail_their_stream_alone(served: Any, field: tuple[str, str]) -> None:
    server, peer = served
    other = peer.open(end=True)
    peer.h2.config.validate_outbound_headers = False
    peer.h2.config.normalize_outbound_headers = False
    bad = peer.open("/s/m", field)
    reset = peer.expect(h2.events.StreamReset, stream_id=bad)
    assert reset.error_code == ErrorCodes.PROTOCOL_ERROR
    server.stream().send_headers(RESPONSE, end=True)
    peer.expect(h2.events.StreamEnded, stream_id=other)
    assert server.streams.empty()
    assert server.refused == ["headers"]


def test_large_headers_are_cut_and_marked(served: Any) -> None:
    server, peer = served
    fields = [(f"x-{number}", "y" * 1000) for number in range(60)]
    peer.open("/s/m", *fields)
    peer.open("/s/m", *fields[:2])
    large, small = server.stream(), server.stream()
    assert not large.has_all_headers
    assert large.headers[":path"] == "/s/m"
    assert len(large.headers) <= 20
    assert small.has_all_headers
    assert small.headers["x-1"] == "y" * 1000


KINDS = st.one_of(st.integers(0, 10), st.integers(0, 255))
STREAMS = st.one_of(st.integers(0, 8), st.integers(0, (1 << 31) - 1))
ANY_FRAMES = st.builds(frame, KINDS, st.integers(0, 255), STREAMS, st.binary(max_size=40))
VALID_FRAMES = st.sampled_from(
    [
        *(headers(stream_id, flags=flags) for stream_id in (1, 3, 5) for flags in (0, 4, 5, 0x25)),
        *(
            frame(0, flags, stream_id, b"\0\0\0\0\1x")
            for stream_id in (1, 3)
            for flags in (0, 1, 8)
        ),
        *(frame(3, 0, stream_id, bytes(4)) for stream_id in (1, 3, 5)),
        *(frame(8, 0, stream_id, struct.pack(">I", 1000)) for stream_id in (0, 1, 3)),
        *(frame(4, 0, 0, struct.pack(">HI", 4, size)) for size in (0, 10, 1 << 20)),
        frame(4, 1, 0),
        frame(6, 0, 0, bytes(8)),
        frame(7, 0, 0, bytes(8)),
        frame(9, 4, 1, b""),
        frame(2, 0, 1, bytes(5)),
    ]
)


def mutate(data: bytes, index: int, value: int) -> bytes:
    changed = bytearray(data)
    changed[index % len(data)] = value
    return bytes(changed)


MUTATED_FRAMES: st.SearchStrategy[bytes] = st.builds(
    mutate, st.one_of(VALID_FRAMES, ANY_FRAMES), st.integers(0, 99), st.integers(0, 255)
)


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(VALID_FRAMES, VALID_FRAMES, ANY_FRAMES, MUTATED_FRAMES), max_size=14),
    st.integers(1, 80),
)
def test_any_frames_leave_other_connections_working(
    background: Callable[..., Any], parts: list[bytes], size: int
) -> None:
    near, far = socket.socketpair()
    responding: list[Any] = []

    def accept(stream: Stream) -> None:
        responding.append(background(echo, stream))

    connection = Connection(ServerSocket(far, 60), "peer", accept)
    running = background(connection.run)
    data = PREFACE + frame(4, 0, 0) + b"".join(parts)
    with near:
        near.settimeout(60)
        try:
            for begin in range(0, len(data), size):
                near.sendall(data[begin : begin + size])
            near.shutdown(socket.SHUT_WR)
            while near.recv(1 << 16):
                pass
        except OSError:
            pass
        running.result()
    assert_new_connection_works(background)
    for each in responding:
        each.result()


def assert_new_connection_works(background: Callable[..., Any]) -> None:
    """Asserts that a valid request on a new connection is answered."""
    near, far = socket.socketpair()
    responding: list[Any] = []
    connection = Connection(
        ServerSocket(far, 60), "peer", lambda stream: responding.append(background(echo, stream))
    )
    running = background(connection.run)
    with near:
        near.settimeout(60)
        near.sendall(PREFACE + frame(4, 0, 0) + headers(1, flags=5))
        received = b""
        while b"\1\5\0\0\0\1" not in received:  # headers that end stream 1
            data = near.recv(1 << 16)
            assert data
            received += data
    running.result()
    responding[0].result()


def echo(stream: Stream) -> None:
    try:
        stream.send_headers(RESPONSE)
        while (data := stream.receive()) is not None:
            stream.send([data, bytes(100)])
        stream.send_headers([("grpc-status", "0")], end=True)
    except StreamClosedError:
        pass
