"""Peers that mean harm, or do not speak HTTP/2: they end alone, and nothing of them stays."""

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

from infeed_server.http2 import connection as connection_module
from infeed_server.http2.connection import Connection
from infeed_server.http2.stream import GoneError, Stream
from infeed_server.http2.wire import Wire

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ANSWER = [(":status", "200")]


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + body


def headers(number: int, *more: tuple[str, str], flags: int = 4) -> bytes:
    """Of a request, as h2 would never send them."""
    from hpack import Encoder

    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/s/m"), (":authority", "s")]
    return frame(1, flags, number, Encoder().encode([*fields, *more]))


def send_all(peer: Any, data: bytes) -> None:
    """As far as the connection takes it."""
    with contextlib.suppress(OSError):
        peer.raw(data)


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
def test_bytes_that_are_no_http2(serve: Any, data: bytes) -> None:
    connection, _ = serve()
    near, far = socket.socketpair()
    taken: list[Stream] = []
    with near:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        Connection(Wire(far, 60), "stranger", taken.append).run()  # it ends
    assert taken == []
    assert connection.thread.is_alive()


@pytest.mark.parametrize(
    "data",
    [
        frame(0, 0, 1, b"data of no stream"),
        frame(3, 0, 1, bytes(4)),  # a reset of no stream
        frame(4, 0, 0, b"short"),
        frame(4, 0, 0, struct.pack(">HI", SettingCodes.INITIAL_WINDOW_SIZE, 1 << 31)),
        frame(4, 0, 0, struct.pack(">HI", SettingCodes.MAX_FRAME_SIZE, 1)),
        frame(5, 4, 1, struct.pack(">I", 2)),  # a promise
        frame(8, 0, 0, bytes(4)),
        frame(8, 0, 0, struct.pack(">I", (1 << 31) - 1)),
        frame(9, 4, 1, b"a continuation of nothing"),
        b"\xff\xff\xff" + frame(0, 0, 1)[3:] + bytes(1 << 17),
        headers(2),
        headers(1) + headers(1),
        frame(1, 4, 1, b"\xff\xff\xff\xff\xff"),
        headers(1, ("UPPER", "x")),
        headers(1, (":path", "twice")),
        headers(1, *((f"x-{number}", "y" * 1000) for number in range(20))),
    ],
)
def test_frames_that_must_not_be(served: Any, data: bytes) -> None:
    connection, peer = served
    send_all(peer, data)
    peer.read_to_end()
    assert peer.expect(h2.events.ConnectionTerminated).error_code != ErrorCodes.NO_ERROR
    assert connection.ended()
    assert connection.streams.qsize() <= 1


def test_headers_without_end(served: Any) -> None:
    connection, peer = served
    send_all(peer, headers(1, flags=0) + frame(9, 0, 1, b"x" * 100) * 1000)
    peer.read_to_end()
    assert connection.ended()


def test_data_beyond_the_window(served: Any) -> None:
    connection, peer = served
    peer.open()
    stream = connection.stream()
    send_all(peer, frame(0, 0, 1, bytes(16384)) * 5)
    peer.read_to_end()
    assert connection.ended()
    with pytest.raises(GoneError):
        stream.receive()


@pytest.mark.parametrize("data", [frame(6, 0, 0, bytes(8)), frame(4, 0, 0)])
def test_questions_whose_answers_are_not_read(
    serve: Any, background: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(connection_module, "_MAX_UNSENT_BYTES", 1 << 16)
    connection, peer = serve({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 30})
    peer.window(1 << 30)
    peer.open()
    sending = background(connection.stream().send, [bytes(1 << 27)])
    eventually(lambda: not connection.wire.is_writable(), "the sockets are full")
    for _ in range(100):
        send_all(peer, data * 1000)
    assert connection.ended()
    with pytest.raises(GoneError):
        sending.result()


def test_questions_of_a_peer_that_reads_nothing_at_all(serve: Any) -> None:
    connection, peer = serve(send_seconds=0.1)
    for each in (peer.socket, connection.wire._socket):  # or megabytes of answers find room
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
    peer.socket.settimeout(0.05)  # what cannot be sent now is sent again, cut or not
    while connection.thread.is_alive():
        send_all(peer, frame(6, 0, 0, bytes(8)) * 1000)
    assert connection.ended()


def test_many_settings(served: Any) -> None:
    connection, peer = served
    send_all(peer, b"".join(frame(4, 0, 0, struct.pack(">HI", it, 1)) for it in range(100, 200)))
    peer.read_to_end()
    assert connection.ended()


def test_a_header_table_that_grows_and_shrinks(served: Any) -> None:
    connection, peer = served
    for size in (1 << 30, 0, 1 << 20, 100, 1 << 16) * 50:
        peer.settings(header_table_size=size)
    peer.machine.decoder.max_allowed_table_size = 1 << 30
    number = peer.open(end=True)
    stream = connection.stream()
    machine = connection.connection._machine._h2
    assert machine.encoder.header_table_size <= 1 << 12
    assert len(machine.encoder.table_size_changes) <= 2
    stream.send_headers([*ANSWER, ("grpc-status", "0")], end=True)
    peer.expect(h2.events.StreamEnded, stream_id=number)


def test_streams_that_are_opened_and_reset(served: Any) -> None:
    connection, peer = served
    for number in range(1, 2 * 1200, 2):
        send_all(peer, headers(number) + frame(3, 0, number, bytes(4)))
    peer.read_to_end()
    assert connection.ended()


def test_resets_over_a_long_time(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_RESETS_SECONDS", -1.0)
    connection, peer = served
    for _ in range(1200):
        peer.reset(peer.open())
    peer.open(end=True)
    streams = [connection.stream() for _ in range(1201)]
    streams[-1].send_headers(ANSWER, end=True)
    peer.expect(h2.events.ResponseReceived)


KINDS = st.one_of(st.integers(0, 10), st.integers(0, 255))
STREAMS = st.one_of(st.integers(0, 8), st.integers(0, (1 << 31) - 1))
FRAMES = st.builds(frame, KINDS, st.integers(0, 255), STREAMS, st.binary(max_size=40))
WELL = st.sampled_from(
    [
        *(headers(number, flags=flags) for number in (1, 3, 5) for flags in (0, 4, 5, 0x25)),
        *(frame(0, flags, number, b"\0\0\0\0\1x") for number in (1, 3) for flags in (0, 1, 8)),
        *(frame(3, 0, number, bytes(4)) for number in (1, 3, 5)),
        *(frame(8, 0, number, struct.pack(">I", 1000)) for number in (0, 1, 3)),
        *(frame(4, 0, 0, struct.pack(">HI", 4, size)) for size in (0, 10, 1 << 20)),
        frame(4, 1, 0),
        frame(6, 0, 0, bytes(8)),
        frame(7, 0, 0, bytes(8)),
        frame(9, 4, 1, b""),
        frame(2, 0, 1, bytes(5)),
    ]
)


def mutated(data: bytes, at: int, to: int) -> bytes:
    changed = bytearray(data)
    changed[at % len(data)] = to
    return bytes(changed)


MUTATED: st.SearchStrategy[bytes] = st.builds(
    mutated, st.one_of(WELL, FRAMES), st.integers(0, 99), st.integers(0, 255)
)


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(WELL, WELL, FRAMES, MUTATED), max_size=14), st.integers(1, 80))
def test_any_frames_end_a_connection_or_leave_it_as_it_was(
    background: Callable[..., Any], parts: list[bytes], cut: int
) -> None:
    near, far = socket.socketpair()
    answering: list[Any] = []

    def accept(stream: Stream) -> None:
        answering.append(background(echo, stream))

    connection = Connection(Wire(far, 60), "peer", accept)
    running = background(connection.run)
    data = PREFACE + frame(4, 0, 0) + b"".join(parts)
    with near:
        near.settimeout(60)
        try:
            for begin in range(0, len(data), cut):
                near.sendall(data[begin : begin + cut])
            near.shutdown(socket.SHUT_WR)
            while near.recv(1 << 16):
                pass
        except OSError:
            pass
        running.result()
    assert_serves(background)
    for each in answering:
        each.result()


def assert_serves(background: Callable[..., Any]) -> None:
    """A peer that does nothing wrong is answered."""
    near, far = socket.socketpair()
    answering: list[Any] = []
    connection = Connection(
        Wire(far, 60), "peer", lambda stream: answering.append(background(echo, stream))
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
    answering[0].result()


def echo(stream: Stream) -> None:
    try:
        stream.send_headers(ANSWER)
        while (data := stream.receive()) is not None:
            stream.send([data, bytes(100)])
        stream.send_headers([("grpc-status", "0")], end=True)
    except GoneError:
        pass
