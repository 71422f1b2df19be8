"""HTTP/2 requests to peers that follow the protocol in all its variants, and to others."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st
from tests.client.waiting import HANG_SECONDS, AheadClock, blocked_in, until
from tests.harness.examples import examples

from infeed.http2 import connection
from infeed.http2 import socket as receiver
from infeed.http2.connection import ConnectionLostError, Http2ProtocolError, Http2Request
from infeed.http2.socket import ClientSocket

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/infeed.v1.FeedService/Test"),
    (":authority", "host:1"),
    ("te", "trailers"),
]
TRAILERS = [("grpc-status", "0"), ("grpc-message", "Well done")]
END_STREAM, PADDED = 1, 8
Start = Callable[..., Http2Request]


@pytest.fixture
def start_request(peer: Any) -> Iterator[Start]:
    """Starts a request to a peer that follows the script."""
    sockets: list[ClientSocket] = []

    def start_request(script: Any, seconds: float | None = None) -> Http2Request:
        socket = ClientSocket(peer(script))
        sockets.append(socket)
        socket.open()
        deadline = None if seconds is None else receiver.time.monotonic() + seconds
        request = Http2Request(socket, deadline)
        request.send_headers(REQUEST)
        return request

    yield start_request
    for socket in sockets:
        socket.close()


def read_all(request: Http2Request, piece: int = 1000) -> bytes:
    """Reads all data to the end."""
    data = b""
    memory = memoryview(bytearray(piece))
    while count := request.read_data(memory):
        data += memory[:count]
    assert request.read_data(memory) == 0
    return data


def responding(*pieces: bytes, trailers: Any = TRAILERS) -> Any:
    """A peer that responds with any bytes, these, between headers and trailers."""

    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        for piece in pieces:
            talk.send(piece)
        if trailers:
            talk.answer(trailers, end=True)
        talk.until_closed()

    return script


def data_frame(body: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return struct.pack(">BHBBI", 0, len(body), 0, flags, stream) + body


class PiecewiseSocket:
    """A socket that receives one piece at a time, and records what is sent."""

    def __init__(self) -> None:
        self.sent = b""
        self.pieces: list[bytes] = []

    def receive(self, into: memoryview, timeout: float) -> int:
        piece, rest = self.pieces[0][: len(into)], self.pieces[0][len(into) :]
        into[: len(piece)] = piece
        self.pieces[:1] = [rest] if rest else []
        return len(piece)

    def send(self, data: bytes) -> None:
        self.sent += data


def whole_response(request: bytes) -> bytes:
    """A server's response to this request, with all kinds of frames."""
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    server.receive_data(request)
    server.send_headers(1, [(":status", "200")])
    response = server.data_to_send() + data_frame(b"some ") + data_frame(b"data")
    server.ping(b"12345678")
    server.send_headers(1, TRAILERS, end_stream=True)
    return response + server.data_to_send()


def test_frames_split_at_any_byte() -> None:
    response = b""
    split = 1
    while not response or split < len(response):
        socket: Any = PiecewiseSocket()
        request = Http2Request(socket)
        request.send_headers(REQUEST)
        response = response or whole_response(socket.sent)
        socket.pieces = [response[:split], response[split:]]
        assert read_all(request) == b"some data"
        assert request.trailers == dict(TRAILERS)
        assert not socket.pieces
        split += 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (struct.pack(">II", 1, 11) + b"too_many_pings", "error code 11 too_many_pings"),
        (struct.pack(">II", 0, 0), "code 0"),
        (struct.pack(">II", 1, 2) + b"\xff\xfe", "code 2"),
        (b"", "code 1"),
    ],
)
def test_goaway_with_an_error_ends_the_request(
    start_request: Start, body: bytes, message: str
) -> None:
    request = start_request(
        responding(struct.pack(">BHBBI", 0, len(body), 7, 0, 0) + body, trailers=None)
    )
    with pytest.raises(ConnectionLostError, match=message):
        read_all(request)


def test_reset_ends_the_request(start_request: Start) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.data(b"some ")
        talk.machine.reset_stream(1, 8)
        talk.flush()
        talk.until_closed()

    request = start_request(script)
    memory = memoryview(bytearray(5))
    assert request.read_data(memory) == 5
    with pytest.raises(ConnectionLostError, match="reset with error code"):
        request.read_data(memory)
    with pytest.raises(ConnectionLostError):
        request.send_data(b"more")


PUSH = struct.pack(">BHBBI", 0, 5, 5, 4, 1) + struct.pack(">I", 2) + b"\x82"


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (data_frame(b"data", stream=3), "4 bytes for stream 3"),
        (data_frame(b"data", stream=0), "4 bytes for stream 0"),
        (data_frame(b"\0data", PADDED), "5 bytes for stream 1, flags 8"),
        (struct.pack(">BHBBI", 0x20, 0, 1, 4, 1), "a frame of type 1 has 2097152 bytes"),
        (struct.pack(">BHBBI", 0, 4, 8, 0, 3) + bytes(4), "."),  # a window of no stream
        (struct.pack(">BHBBI", 0, 2, 1, 4, 3) + b"\x88\x88", "."),  # headers of no stream
        (struct.pack(">BHBBI", 0, 3, 6, 0, 0) + b"123", "."),  # a ping too short
        (struct.pack(">BHBBI", 0, 3, 1, 4, 1) + b"\xff\xff\xff", "."),  # no HPACK
        (PUSH, "."),
    ],
)
def test_invalid_frames_are_refused(start_request: Start, sent: bytes, message: str) -> None:
    request = start_request(responding(sent, trailers=None))
    with pytest.raises(Http2ProtocolError, match=message):
        read_all(request)


@pytest.mark.parametrize(
    ("sent", "error", "message"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            Http2ProtocolError,
            "uses HTTP/1,",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Http2ProtocolError, "an unknown protocol, not HTTP/2"),
        (b"\x15\x03\x03\0\x02\x02\x46", ConnectionLostError, "closed"),  # a TLS alert
        (b"", ConnectionLostError, "closed"),
        (data_frame(b"data"), Http2ProtocolError, "an unknown protocol"),
    ],
)
def test_peer_of_another_protocol_is_refused(
    start_request: Start, sent: bytes, error: type[Exception], message: str
) -> None:
    def script(talk: Any) -> None:
        talk.socket.recv(1 << 16)
        talk.send(sent)

    # Unread data may reset the connection.
    with pytest.raises((error, ConnectionResetError)) as caught:
        read_all(start_request(script))
    assert isinstance(caught.value, ConnectionResetError) or message in str(caught.value)


def test_send_waits_for_the_window(start_request: Start) -> None:
    body = os.urandom(300_000)
    is_waiting = threading.Event()
    received: list[bytes] = []

    def script(talk: Any) -> None:
        talk.greet({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        talk.answer()
        talk.data(b"x")
        assert is_waiting.wait(2 * HANG_SECONDS)
        talk.until(lambda: len(talk.body) == 10, credit=False)
        assert talk.body == body[:10]
        talk.machine.acknowledge_received_data(10, 1)
        talk.machine.increment_flow_control_window(1 << 20, 1)
        talk.flush()
        talk.until(lambda: talk.seen(h2.events.StreamEnded))
        received.append(talk.body)
        talk.answer(TRAILERS, end=True)
        talk.until_closed()

    request = start_request(script)
    request.read_data(memoryview(bytearray(1)))  # so the settings have arrived

    sender = threading.Thread(target=request.send_data, args=(body,), kwargs={"end": True})
    sender.start()
    until(lambda: blocked_in(sender, "wait", "_wait_for_window"))
    is_waiting.set()
    assert read_all(request) == b""
    sender.join()
    assert received == [body]


def test_window_is_reopened(start_request: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_WINDOW_UPDATE_BYTES", 1000)
    whole = (1 << 31) - 1
    seen: list[tuple[int, int]] = []

    def script(talk: Any) -> None:
        talk.greet()
        talk.until(lambda: talk.machine.outbound_flow_control_window == whole)
        talk.answer()
        for _ in range(5):
            talk.machine.send_data(1, bytes(600))
        talk.flush()
        updates = h2.events.WindowUpdated
        talk.until(lambda: len(talk.seen(updates)) == 5)
        seen.extend((event.stream_id, event.delta) for event in talk.seen(updates))
        assert talk.machine.local_flow_control_window(1) == whole - 600
        talk.answer(TRAILERS, end=True)
        talk.until_closed()

    assert read_all(start_request(script)) == bytes(5 * 600)
    assert seen[0] == (0, whole - 65_535)
    assert seen[1:] == [(0, 1200), (1, 1200)] * 2


def shorten_keepalive(monkeypatch: pytest.MonkeyPatch, timeout: float = 0.05) -> None:
    monkeypatch.setattr(receiver, "CLIENT_PING_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(receiver, "CLIENT_PING_TIMEOUT_SECONDS", timeout)


def test_silent_peer_is_pinged(start_request: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_keepalive(monkeypatch, timeout=HANG_SECONDS)

    def script(talk: Any) -> None:
        talk.greet()
        talk.until(lambda: len(talk.seen(h2.events.PingReceived)) == 3)
        responding(data_frame(b"data"))(talk)

    assert read_all(start_request(script)) == b"data"


def test_unanswered_ping_ends_the_connection(
    start_request: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_keepalive(monkeypatch)

    def script(talk: Any) -> None:
        while talk.socket.recv(1 << 16):
            pass

    request = start_request(script)
    with pytest.raises(ConnectionLostError, match=r"nothing was received for 0\.1 s"):
        read_all(request)


class InMemorySocket:
    """A socket that receives its content, and ignores what is sent."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def receive(self, into: memoryview, timeout: float) -> int:
        piece = self._content[: len(into)]
        into[: len(piece)] = piece
        self._content = self._content[len(piece) :]
        return len(piece)

    def send(self, data: bytes) -> None:
        assert data

    def abort(self) -> None: ...


SETTINGS = struct.pack(">BHBBI", 0, 0, 4, 0, 0)
OK = struct.pack(">BHBBI", 0, 1, 1, 4, 1) + b"\x88"  # :status 200
frames = st.builds(
    lambda kind, flags, stream, body: (
        len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body
    ),
    st.integers(0, 11) | st.integers(0, 255),
    st.integers(0, 255),
    st.sampled_from([0, 1, 2, 3, (1 << 32) - 1]),
    st.binary(max_size=30),
)


def test_deadline_bounds_frames_that_complete_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = AheadClock()
    monkeypatch.setattr(receiver, "time", clock)

    class Flood(InMemorySocket):
        def receive(self, into: memoryview, timeout: float) -> int:
            clock.ahead += 1.0
            assert clock.ahead < 100, "the read does not end"
            self._content = self._content or data_frame(b"") * 400
            return super().receive(into, timeout)

    socket: Any = Flood(SETTINGS + OK)
    request = Http2Request(socket, clock.monotonic() + 20.0)
    request.send_headers(REQUEST)
    with pytest.raises(TimeoutError):
        read_all(request)


@examples(200)
@given(st.lists(frames, max_size=6), st.booleans(), st.binary(max_size=20))
def test_noise_never_crashes(sent: list[bytes], headers: bool, more: bytes) -> None:
    socket: Any = InMemorySocket(SETTINGS + (OK if headers else b"") + b"".join(sent) + more)
    request = Http2Request(socket)
    request.send_headers(REQUEST)
    with contextlib.suppress(ConnectionLostError, Http2ProtocolError):
        read_all(request)
    with contextlib.suppress(ConnectionLostError):
        request.send_data(b"x")
