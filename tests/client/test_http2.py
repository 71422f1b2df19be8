"""HTTP/2 from a peer that keeps to it, in all the ways it may, and from some that do not."""

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

from infeed import http2, inflow
from infeed.http2 import BrokenError, Exchange, LostError
from infeed.link import Link

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/infeed.v1.FeedService/Test"),
    (":authority", "host:1"),
    ("te", "trailers"),
]
TRAILERS = [("grpc-status", "0"), ("grpc-message", "Well done")]
END_STREAM, PADDED = 1, 8
Open = Callable[..., Exchange]


@pytest.fixture
def begin(peer: Any) -> Iterator[Open]:
    """Starts a request to a peer that follows the script."""
    links: list[Link] = []

    def begin(script: Any, seconds: float | None = None) -> Exchange:
        link = Link(peer(script))
        links.append(link)
        link.open()
        exchange = Exchange(link, None if seconds is None else inflow.time.monotonic() + seconds)
        exchange.start(REQUEST)
        return exchange

    yield begin
    for link in links:
        link.close()


def rest(exchange: Exchange, piece: int = 1000) -> bytes:
    """All data to the end."""
    data = b""
    memory = memoryview(bytearray(piece))
    while count := exchange.read(memory):
        data += memory[:count]
    assert exchange.read(memory) == 0
    return data


def answering(*pieces: bytes, trailers: Any = TRAILERS) -> Any:
    """A peer whose answer is these bytes, whatever they are, between headers and trailers."""

    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        for piece in pieces:
            talk.send(piece)
        if trailers:
            talk.answer(trailers, end=True)
        talk.until_closed()

    return script


def data(body: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return struct.pack(">BHBBI", 0, len(body), 0, flags, stream) + body


def test_an_answer(begin: Open) -> None:
    def script(talk: Any) -> None:
        answering(data(b"some "), data(b"data"))(talk)
        assert talk.headers == dict(REQUEST)

    exchange = begin(script)
    assert rest(exchange) == b"some data"
    assert exchange.headers == {":status": "200", "content-type": "application/grpc"}
    assert exchange.trailers == {"grpc-status": "0", "grpc-message": "Well done"}


@pytest.mark.parametrize("piece", [1, 7, 5000])
@pytest.mark.parametrize("padding", [0, 1, 255])
def test_padding(begin: Open, padding: int, piece: int) -> None:
    def padded(body: bytes) -> bytes:
        return data(bytes((padding,)) + body + b"\xff" * padding, PADDED)

    exchange = begin(answering(padded(b"some "), padded(b""), data(b""), padded(b"data")))
    assert rest(exchange, piece) == b"some data"
    assert exchange.trailers["grpc-status"] == "0"


def test_more_padding_than_frame(begin: Open) -> None:
    exchange = begin(answering(data(b"\x05abcd", PADDED)))
    with pytest.raises(BrokenError, match="padding of 6 bytes in a frame of 5"):
        rest(exchange)


@pytest.mark.parametrize("last", [b"data", b""])
def test_an_end_without_trailers(begin: Open, last: bytes) -> None:
    exchange = begin(answering(data(b"some "), data(last, END_STREAM), trailers=None))
    assert rest(exchange) == b"some " + last
    assert exchange.trailers == {}


def test_an_end_in_padding(begin: Open) -> None:
    exchange = begin(answering(data(b"\x02data\0\0", PADDED | END_STREAM), trailers=None))
    assert rest(exchange, 3) == b"data"


def test_trailers_only(begin: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer([(":status", "200"), ("grpc-status", "5")], end=True)
        talk.until_closed()

    exchange = begin(script)
    assert rest(exchange) == b""
    assert exchange.headers["grpc-status"] == "5"
    assert exchange.trailers == {}


class Pieces:
    """A link that brings each piece by itself, and keeps what is sent."""

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


def whole_answer(request: bytes) -> bytes:
    """What a server sends to this request, all kinds of frames."""
    machine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    machine.initiate_connection()
    machine.receive_data(request)
    machine.send_headers(1, [(":status", "200")])
    answer = machine.data_to_send() + data(b"some ") + data(b"\x02data\0\0", PADDED)
    machine.ping(b"12345678")
    machine.send_headers(1, TRAILERS, end_stream=True)
    return answer + machine.data_to_send()


def test_frames_that_arrive_in_two_pieces() -> None:
    """Cut at every byte."""
    answer = b""
    cut = 1
    while not answer or cut < len(answer):
        link: Any = Pieces()
        exchange = Exchange(link)
        exchange.start(REQUEST)
        answer = answer or whole_answer(link.sent)
        link.pieces = [answer[:cut], answer[cut:]]
        assert rest(exchange) == b"some data"
        assert exchange.trailers == dict(TRAILERS)
        assert not link.pieces
        cut += 1


@pytest.mark.parametrize("piece", [1, 4095, 4096, 100_000])
def test_large_frames(begin: Open, piece: int) -> None:
    sizes = (20_000, 16_384, 4096, 4095, 1)
    body = os.urandom(sizes[0])
    whole = b"".join(
        length.to_bytes(3, "big") + b"\0\0\0\0\0\1" + body[:length] for length in sizes
    )
    exchange = begin(answering(whole))
    assert rest(exchange, piece) == b"".join(body[:size] for size in sizes)


def test_the_largest_frame(begin: Open) -> None:
    size = (1 << 24) - 1

    def script(talk: Any) -> None:
        talk.greet()
        assert talk.machine.remote_settings.max_frame_size == size
        assert not talk.machine.remote_settings.enable_push
        talk.answer()
        talk.data(bytes(size), END_STREAM)
        talk.until_closed()

    assert len(rest(begin(script), 1 << 24)) == size


@pytest.mark.parametrize("frame_bytes", [16_384, 1 << 20])
def test_large_trailers(begin: Open, frame_bytes: int) -> None:
    """In one frame, or in many."""

    def script(talk: Any) -> None:
        talk.greet()
        talk.machine.max_outbound_frame_size = frame_bytes
        talk.machine.streams[1].max_outbound_frame_size = frame_bytes
        talk.answer()
        talk.answer([("grpc-status", "2"), ("x", "\x7f~" * 8_000)], end=True)
        talk.until_closed()

    exchange = begin(script)
    assert rest(exchange) == b""
    assert exchange.trailers["x"] == "\x7f~" * 8_000


def test_trailers_that_are_too_large(begin: Open) -> None:
    exchange = begin(answering(trailers=[(f"x{n}", "y" * 23_000) for n in range(3)]))
    with pytest.raises(BrokenError, match="65536"):
        rest(exchange)


def test_signs_that_an_answer_is_under_way(begin: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer([(":status", "103"), ("link", "x")])
        talk.send(talk.frame(0xBA, 3, 7, b"a frame of a kind that nobody knows"))
        answering(data(b"data"))(talk)

    exchange = begin(script)
    assert rest(exchange) == b"data"
    assert exchange.headers[":status"] == "200"


def test_goaway_lets_what_has_begun_end(begin: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.data(b"some ")
        for last in (0x7FFFFFFF, 1):
            talk.send(talk.frame(7, 0, 0, struct.pack(">II", last, 0) + b"leaving"))
            talk.data(b"data ")
        talk.answer(TRAILERS, end=True)
        talk.until_closed()

    exchange = begin(script)
    assert rest(exchange) == b"some data data "
    assert exchange.trailers == dict(TRAILERS)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (struct.pack(">II", 1, 11) + b"too_many_pings", "code 11 too_many_pings"),
        (struct.pack(">II", 0, 0), "code 0"),
        (struct.pack(">II", 1, 2) + b"\xff\xfe", "code 2"),
        (b"", "code 1"),
    ],
)
def test_goaway_that_ends_all(begin: Open, body: bytes, told: str) -> None:
    exchange = begin(answering(struct.pack(">BHBBI", 0, len(body), 7, 0, 0) + body, trailers=None))
    with pytest.raises(LostError, match=told):
        rest(exchange)


def test_a_reset(begin: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.data(b"some ")
        talk.machine.reset_stream(1, 8)
        talk.flush()
        talk.until_closed()

    exchange = begin(script)
    memory = memoryview(bytearray(5))
    assert exchange.read(memory) == 5
    with pytest.raises(LostError, match="reset with code"):
        exchange.read(memory)
    with pytest.raises(LostError):
        exchange.send(b"more")


def test_a_reset_behind_the_end_says_nothing(begin: Open) -> None:
    """gRPC's way not to wait for the rest of the request."""
    reset = struct.pack(">BHBBI", 0, 4, 3, 0, 1) + bytes(4)
    exchange = begin(answering(data(b"data", END_STREAM) + reset, trailers=None))
    assert rest(exchange) == b"data"
    with pytest.raises(LostError):
        exchange.send(b"more")


PUSH = struct.pack(">BHBBI", 0, 5, 5, 4, 1) + struct.pack(">I", 2) + b"\x82"


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (data(b"data", stream=3), "4 bytes of data for stream 3"),
        (data(b"data", stream=0), "4 bytes of data for stream 0"),
        (struct.pack(">BHBBI", 0x20, 0, 1, 4, 1), "a frame of kind 1 and 2097152 bytes"),
        (struct.pack(">BHBBI", 0, 4, 8, 0, 3) + bytes(4), "."),  # a window for no stream
        (struct.pack(">BHBBI", 0, 2, 1, 4, 3) + b"\x88\x88", "."),  # headers of no stream
        (struct.pack(">BHBBI", 0, 3, 6, 0, 0) + b"123", "."),  # a ping too short
        (struct.pack(">BHBBI", 0, 3, 1, 4, 1) + b"\xff\xff\xff", "."),  # no HPACK
        (PUSH, "."),
    ],
)
def test_frames_that_may_not_be(begin: Open, sent: bytes, told: str) -> None:
    exchange = begin(answering(sent, trailers=None))
    with pytest.raises(BrokenError, match=told):
        rest(exchange)


def test_data_before_the_headers(begin: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.data(b"data")
        talk.until_closed()

    with pytest.raises(BrokenError, match="4 bytes of data"):
        rest(begin(script))


def test_headers_of_a_stream_that_the_peer_began(begin: Open) -> None:
    """They are refused or passed over, but never taken for the answer's end."""
    ours = struct.pack(">BHBBI", 0, 1, 1, 5, 2) + b"\x88"
    exchange = begin(answering(ours, data(b"data")))
    with contextlib.suppress(BrokenError):
        assert rest(exchange) == b"data"


@pytest.mark.parametrize(
    ("sent", "error", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", BrokenError, "speaks HTTP/1,"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", BrokenError, "something else, not HTTP/2"),
        (b"\x15\x03\x03\0\x02\x02\x46", LostError, "cut"),  # what TLS says to plain bytes
        (b"", LostError, "cut"),
        (data(b"data"), BrokenError, "something else"),
    ],
)
def test_peers_that_speak_something_else(
    begin: Open, sent: bytes, error: type[Exception], told: str
) -> None:
    def script(talk: Any) -> None:
        talk.socket.recv(1 << 16)
        talk.send(sent)

    # What they did not read may reset the connection.
    with pytest.raises((error, ConnectionResetError)) as caught:
        rest(begin(script))
    assert isinstance(caught.value, ConnectionResetError) or told in str(caught.value)


@pytest.mark.parametrize("sent", [b"\0\0", data(b"some data")[:-3], data(b"\x09a", PADDED)[:-1]])
def test_a_peer_that_leaves_in_a_frame(begin: Open, sent: bytes) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.send(sent)

    # What it did not take in may reset the connection.
    with pytest.raises((LostError, BrokenError, ConnectionResetError)):
        rest(begin(script))


def test_requests_wait_for_the_window(begin: Open) -> None:
    body = os.urandom(300_000)
    waits = threading.Event()
    got: list[bytes] = []

    def script(talk: Any) -> None:
        talk.greet({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        talk.answer()
        talk.data(b"x")
        assert waits.wait(2 * HANG_SECONDS)
        talk.until(lambda: len(talk.body) == 10, credit=False)
        assert talk.body == body[:10]
        talk.machine.acknowledge_received_data(10, 1)
        talk.machine.increment_flow_control_window(1 << 20, 1)
        talk.flush()
        talk.until(lambda: talk.seen(h2.events.StreamEnded))
        got.append(talk.body)
        talk.answer(TRAILERS, end=True)
        talk.until_closed()

    exchange = begin(script)
    exchange.read(memoryview(bytearray(1)))  # the settings have come

    def send() -> None:
        exchange.send(body)
        exchange.send(b"", end=True)

    sender = threading.Thread(target=send)
    sender.start()
    until(lambda: blocked_in(sender, "wait", "_wait_for_room"))
    waits.set()
    assert rest(exchange) == b""
    sender.join()
    assert got == [body]


def test_the_end_wakes_who_waits_for_the_window(begin: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.until(lambda: talk.over, credit=False)

    exchange = begin(script)
    lost: list[LostError] = []

    def send() -> None:
        try:
            exchange.send(bytes(100_000))
        except LostError as error:
            lost.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    until(lambda: blocked_in(sender, "wait", "_wait_for_room"))
    exchange.end()
    sender.join(HANG_SECONDS)
    assert str(lost[0]) == "the stream is over"
    with pytest.raises(LostError, match="the stream is over"):
        exchange.send(b"")


def test_the_window_is_opened_again(begin: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "_CREDIT_BYTES", 1000)
    whole = (1 << 31) - 1
    seen: list[tuple[int, int]] = []

    def script(talk: Any) -> None:
        talk.greet()
        talk.until(lambda: talk.machine.outbound_flow_control_window == whole)
        talk.answer()
        for _ in range(5):
            talk.machine.send_data(1, bytes(590), pad_length=9)
        talk.flush()
        updates = h2.events.WindowUpdated
        talk.until(lambda: len(talk.seen(updates)) == 5)
        seen.extend((event.stream_id, event.delta) for event in talk.seen(updates))
        assert talk.machine.local_flow_control_window(1) == whole - 600
        talk.answer(TRAILERS, end=True)
        talk.until_closed()

    assert rest(begin(script)) == bytes(5 * 590)
    assert seen[0] == (0, whole - 65_535)
    assert seen[1:] == [(0, 1200), (1, 1200)] * 2


def impatient(monkeypatch: pytest.MonkeyPatch, patience: float = 0.05) -> None:
    monkeypatch.setattr(inflow, "CLIENT_PING_SECONDS", 0.05)
    monkeypatch.setattr(inflow, "CLIENT_PATIENCE_SECONDS", patience)


def test_a_silent_peer_is_pinged(begin: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch, patience=HANG_SECONDS)

    def script(talk: Any) -> None:
        talk.greet()
        talk.until(lambda: len(talk.seen(h2.events.PingReceived)) == 3)
        answering(data(b"data"))(talk)

    assert rest(begin(script)) == b"data"


def test_a_peer_that_answers_no_ping_is_gone(begin: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)

    def script(talk: Any) -> None:
        while talk.socket.recv(1 << 16):
            pass

    exchange = begin(script)
    with pytest.raises(LostError, match=r"nothing was heard for 0\.1 s, not even to a ping"):
        rest(exchange)


def test_pings_of_the_peer_are_answered(begin: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        for number in range(1, 6):
            talk.machine.ping(number.to_bytes(8, "big"))
            talk.flush()
            talk.until(lambda n=number: len(talk.seen(h2.events.PingAckReceived)) == n)
        answering(data(b"data"))(talk)

    assert rest(begin(script)) == b"data"


def test_the_deadline(begin: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = AheadClock()
    monkeypatch.setattr(inflow, "time", clock)

    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.data(b"some ")
        talk.until_closed()

    exchange = begin(script, seconds=HANG_SECONDS)
    assert exchange.read(memoryview(bytearray(9))) == 5
    clock.ahead = HANG_SECONDS
    with pytest.raises(TimeoutError):
        rest(exchange)


class Recording:
    """A link that brings what it holds, and takes everything."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def receive(self, into: memoryview, timeout: float) -> int:
        piece = self._content[: len(into)]
        into[: len(piece)] = piece
        self._content = self._content[len(piece) :]
        return len(piece)

    def send(self, data: bytes) -> None:
        assert data

    def cut(self) -> None: ...


GREETING = struct.pack(">BHBBI", 0, 0, 4, 0, 0)
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


@examples(200)
@given(st.lists(frames, max_size=6), st.booleans(), st.binary(max_size=20))
def test_noise_ends_a_stream_but_never_crashes(
    sent: list[bytes], headers: bool, more: bytes
) -> None:
    link: Any = Recording(GREETING + (OK if headers else b"") + b"".join(sent) + more)
    exchange = Exchange(link)
    exchange.start(REQUEST)
    with contextlib.suppress(LostError, BrokenError):
        rest(exchange)
    with contextlib.suppress(LostError):
        exchange.send(b"x")
