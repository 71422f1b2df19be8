"""gRPC's messages and endings, from peers that are driven by hand."""

from __future__ import annotations

import base64
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import h2.events
import pytest
from h2.settings import SettingCodes
from tests.client.waiting import HANG_SECONDS, AheadClock, blocked_in, until

from infeed import call as call_module
from infeed import inflow, link
from infeed.call import MAX_MESSAGE_BYTES, GrpcCall, only_message
from infeed.errors import (
    InfeedError,
    PipelineNotFoundError,
    ProtocolError,
    SampleError,
    ServerUnavailableError,
)
from infeed.v1 import feed_service_pb2 as service

TRAILERS = [("grpc-status", "0")]
END_STREAM = 1


class Opened:
    """A call, and what it told of itself."""

    def __init__(self, address: str, requests: Any, timeout: float | None) -> None:
        self.draining = 0
        self.closed: list[GrpcCall] = []
        self.call = GrpcCall(
            address,
            "/infeed.v1.FeedService/Test",
            iter(requests),
            timeout=timeout,
            draining=self._count,
            closed=self.closed.append,
        )

    def _count(self) -> None:
        self.draining += 1

    def next(self) -> bytes | None:
        """The next message, whole."""
        size = self.call.next()
        if size is None:
            return None
        message = bytearray(size)
        self.call.read_into(memoryview(message))
        return bytes(message)

    def rest(self) -> list[bytes]:
        return list(iter(self.next, None))


Open = Callable[..., Opened]


@pytest.fixture
def dial() -> Iterator[Open]:
    """Opens calls that are closed behind the test."""
    calls: list[Opened] = []

    def dial(address: str, requests: Any = (), timeout: float | None = None) -> Opened:
        calls.append(Opened(address, requests, timeout))
        return calls[-1]

    yield dial
    for each in calls:
        each.call.close()
        assert set(each.closed) == {each.call}


def message(body: bytes, compressed: int = 0) -> bytes:
    return bytes((compressed,)) + len(body).to_bytes(4, "big") + body


def answering(*pieces: bytes, trailers: Any = TRAILERS, headers: Any = None) -> Any:
    """A peer whose answer is these DATA frames between headers and trailers."""

    def script(talk: Any) -> None:
        talk.greet()
        talk.answer(*([] if headers is None else [headers]))
        for piece in pieces:
            talk.data(piece)
        if trailers:
            talk.answer(trailers, end=True)
        talk.until_closed()

    return script


def only_headers(*headers: tuple[str, str]) -> Any:
    """A peer that answers in one frame."""

    def script(talk: Any) -> None:
        talk.greet()
        talk.answer(list(headers), end=True)
        talk.until_closed()

    return script


SEVERAL = [b"one", b"", b"x" * 5000, b"four"]
STREAM = b"".join(map(message, SEVERAL))


@pytest.mark.parametrize("size", [1, 2, 7, 4999, len(STREAM)])
def test_messages_do_not_care_for_frames(peer: Any, dial: Open, size: int) -> None:
    pieces = [STREAM[begin : begin + size] for begin in range(0, len(STREAM), size)]
    opened = dial(peer(answering(*pieces)))
    assert opened.rest() == SEVERAL


def test_a_message_is_read_into_many_memories(peer: Any, dial: Open) -> None:
    body = os.urandom(300_000)
    opened = dial(peer(answering(message(body)[:70_000], message(body)[70_000:])))
    assert opened.call.next() == len(body)
    parts = []
    for size in (0, 1, 24, 100_000, 0, len(body) - 100_025):
        parts.append(bytearray(size))
        opened.call.read_into(memoryview(parts[-1]))
    assert b"".join(parts) == body
    assert opened.call.next() is None


def test_no_more_is_read_than_the_message_has(peer: Any, dial: Open) -> None:
    opened = dial(peer(answering(STREAM)))
    assert opened.call.next() == 3
    with pytest.raises(ProtocolError, match="ends 2 bytes early"):
        opened.call.read_into(memoryview(bytearray(5)))
    opened.call.read_into(memoryview(bytearray(2)))
    with pytest.raises(ProtocolError, match="ends 4 bytes early"):
        opened.call.read_into(memoryview(bytearray(5)))


def test_what_is_asked(peer: Any, dial: Open) -> None:
    requests = [service.GetPipelineRequest(name="a" * length) for length in (0, 3, 100_000)]
    seen: dict[str, Any] = {}

    def script(talk: Any) -> None:
        talk.greet()
        talk.until(lambda: talk.seen(h2.events.StreamEnded))
        seen.update(talk.headers, body=talk.body)
        talk.answer()
        talk.answer(TRAILERS, end=True)
        talk.until_closed()

    address = peer(script)
    assert dial(address, requests, timeout=30).rest() == []
    assert seen.pop("body") == b"".join(message(each.SerializeToString()) for each in requests)
    assert seen == {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/infeed.v1.FeedService/Test",
        ":authority": address,
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "infeed",
        "grpc-timeout": "30000m",
    }
    seen.clear()
    assert dial(address).rest() == []
    assert "grpc-timeout" not in seen


def test_nothing_happens_before_the_first_message_is_asked_for(dial: Open) -> None:
    def requests() -> Iterator[Any]:
        raise AssertionError
        yield

    before = set(threading.enumerate())
    dial("127.0.0.1:1", requests())
    assert set(threading.enumerate()) <= before


def test_an_error_without_a_message(
    peer: Any, dial: Open, status_of: Callable[[InfeedError], Any]
) -> None:
    told = status_of(SampleError("a.jpg is no image \u00e9", file="a.jpg"))
    headers = [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", str(told.code.value[0])),
        *told.trailing_metadata,
    ]
    encoded = [(key, encode(value)) for key, value in headers]
    with pytest.raises(SampleError, match=r"^a\.jpg is no image \u00e9$") as caught:
        dial(peer(only_headers(*encoded))).call.next()
    assert caught.value.metadata == {"file": "a.jpg"}


def encode(value: str | bytes) -> str:
    # Without padding, as gRPC may send it.
    return value if isinstance(value, str) else base64.b64encode(value).decode().rstrip("=")


def test_an_error_behind_messages(peer: Any, dial: Open) -> None:
    trailers = [("grpc-status", "14"), ("grpc-message", "going%20away")]
    opened = dial(peer(answering(message(b"one"), trailers=trailers)))
    assert opened.next() == b"one"
    with pytest.raises(ServerUnavailableError, match="going away"):
        opened.next()


def test_an_empty_answer(peer: Any, dial: Open) -> None:
    headers = ((":status", "200"), ("content-type", "application/grpc+proto"), *TRAILERS)
    assert dial(peer(only_headers(*headers))).call.next() is None


@pytest.mark.parametrize("body", [b"", message(b"one")])
def test_an_end_without_trailers_is_a_loss(peer: Any, dial: Open, body: bytes) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.data(body, END_STREAM)
        talk.until_closed()

    opened = dial(peer(script))
    with pytest.raises(ServerUnavailableError, match="ended without a status"):
        opened.rest()


@pytest.mark.parametrize("cut", [1, 4, 5, 7])
@pytest.mark.parametrize(
    ("trailers", "error", "told"),
    [
        (TRAILERS, ProtocolError, "broke off in a message"),
        ([("grpc-status", "5"), ("grpc-message", "no")], InfeedError, "NOT_FOUND: no"),
        ([("x", "y")], ServerUnavailableError, "without a status"),
    ],
)
def test_a_stream_that_ends_in_a_message(
    peer: Any, dial: Open, cut: int, trailers: Any, error: type[InfeedError], told: str
) -> None:
    opened = dial(peer(answering(message(b"one")[:cut], trailers=trailers)))
    with pytest.raises(error, match=told):
        opened.next()


@pytest.mark.parametrize("sent", [b"", b"\0\0", message(b"a long one")[:-1]])
def test_a_peer_that_leaves(peer: Any, dial: Open, sent: bytes) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.data(sent)

    opened = dial(peer(script))
    with pytest.raises(ServerUnavailableError, match=r"no server at 127\.0\.0\.1:\d+: "):
        opened.next()


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (message(b"one", compressed=1), "compressed"),
        (message(b"one", compressed=255), "compressed"),
        (b"\0\xff\xff\xff\xff", "of 4294967295 bytes"),
        (b"\0" + (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"), "of 67108865 bytes"),
    ],
)
def test_messages_that_make_no_sense(peer: Any, dial: Open, sent: bytes, told: str) -> None:
    opened = dial(peer(answering(sent)))
    with pytest.raises(ProtocolError, match=rf"127\.0\.0\.1:\d+ sent a .*{told}"):
        opened.call.next()


PAGE = b"<html><body>This is not the page that you are looking for.</body></html>"


@pytest.mark.parametrize("body", [(), (PAGE,)])
@pytest.mark.parametrize(
    ("status", "kind", "error", "told"),
    [
        ("503", "text/plain", ServerUnavailableError, "no server at .*HTTP status 503"),
        ("502", "application/grpc", ServerUnavailableError, "HTTP status 502"),
        ("404", "text/html", ProtocolError, "not as an infeed server: HTTP status 404, text/html"),
        ("200", "text/html", ProtocolError, "not as an infeed server: HTTP status 200, text/html"),
        ("403", None, ProtocolError, "HTTP status 403, no content type"),
    ],
)
def test_proxies(
    peer: Any,
    dial: Open,
    status: str,
    kind: str | None,
    error: type[InfeedError],
    told: str,
    body: tuple[bytes, ...],
) -> None:
    headers = [(":status", status), *([("content-type", kind)] if kind else [])]
    script = answering(*body, headers=headers, trailers=[("x", "y")])
    opened = dial(peer(script if body else only_headers(*headers)))
    with pytest.raises(error, match=told):
        opened.next()


def test_a_status_counts_more_than_http(peer: Any, dial: Open) -> None:
    headers = ((":status", "404"), ("grpc-status", "14"), ("grpc-message", "soon"))
    with pytest.raises(ServerUnavailableError, match="soon"):
        dial(peer(only_headers(*headers))).call.next()


def test_a_server_of_http_1(peer: Any, dial: Open) -> None:
    def script(talk: Any) -> None:
        talk.socket.recv(1 << 16)
        talk.send(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        while talk.socket.recv(1 << 16):
            pass

    with pytest.raises(
        ProtocolError, match=r"not as an infeed server: it speaks HTTP/1, not HTTP/2$"
    ):
        dial(peer(script)).call.next()


def test_nobody_listens(dial: Open) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        opened = dial(f"127.0.0.1:{probe.getsockname()[1]}")
        with pytest.raises(ServerUnavailableError, match="Connection refused"):
            opened.call.next()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 70])
def test_names_of_no_host(dial: Open, name: str) -> None:
    with pytest.raises(ServerUnavailableError, match=f"no server at {name}:1: "):
        dial(f"{name}:1").call.next()


@pytest.mark.parametrize("timeout", [0.1, None])
def test_a_server_that_does_not_accept(
    full: str, dial: Open, timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss, with a time for the whole call and without: a feed tries again."""
    monkeypatch.setattr(call_module, "CONNECT_SECONDS", 10 * HANG_SECONDS if timeout else 0.1)
    opened = dial(full, timeout=timeout)
    with pytest.raises(ServerUnavailableError, match="did not answer in time"):
        opened.call.next()


def test_a_server_that_is_too_slow(peer: Any, dial: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = AheadClock()
    monkeypatch.setattr(inflow, "time", clock)
    opened = dial(peer(answering(message(b"one"), trailers=None)), timeout=HANG_SECONDS)
    assert opened.next() == b"one"
    clock.ahead = HANG_SECONDS
    with pytest.raises(ServerUnavailableError, match="did not answer in time"):
        opened.next()


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Cancels a call from another thread while this one reads, once its reader or its sender is
    blocked in the functions; every wait of the call is far longer than the test."""
    monkeypatch.setattr(link, "SEND_SECONDS", 10 * HANG_SECONDS)
    monkeypatch.setattr(call_module, "CONNECT_SECONDS", 10 * HANG_SECONDS)
    monkeypatch.setattr(call_module, "_JOIN_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(inflow, "CLIENT_PING_SECONDS", 10 * HANG_SECONDS)

    def cancel_and_read(opened: Opened, thread: str, *functions: str) -> None:
        reader = threading.current_thread()

        def blocked() -> bool:
            waits = reader if thread == "reader" else opened.call._sender
            return waits is not None and blocked_in(waits, *functions)

        def cancel() -> None:
            until(blocked)
            opened.call.cancel()

        canceller = threading.Thread(target=cancel, daemon=True)
        canceller.start()
        with pytest.raises(ServerUnavailableError):
            opened.rest()
        canceller.join(HANG_SECONDS)
        assert not canceller.is_alive()
        opened.call.close()
        assert opened.call._sender is None or not opened.call._sender.is_alive()

    return cancel_and_read


def test_cancel_while_connecting(full: str, dial: Open, cancelled: Any) -> None:
    cancelled(dial(full), "reader", "_wait", "_connect")


def test_cancel_while_reading(peer: Any, dial: Open, cancelled: Any) -> None:
    opened = dial(peer(answering(message(b"one"), message(b"two")[:6], trailers=None)))
    cancelled(opened, "reader", "_wait", "receive")


def test_cancel_while_a_request_waits_for_the_window(peer: Any, dial: Open, cancelled: Any) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.until(lambda: talk.over, credit=False)

    opened = dial(peer(script), [service.GetPipelineRequest(name="a" * 100_000)])
    cancelled(opened, "sender", "wait", "_wait_for_room")


def test_cancel_while_the_peer_takes_nothing(peer: Any, dial: Open, cancelled: Any) -> None:
    """Who sends holds the connection then; the one who cancels must not wait for it."""
    gone = threading.Event()

    def script(talk: Any) -> None:
        # The widest of windows, and nobody who reads.
        talk.greet({SettingCodes.INITIAL_WINDOW_SIZE: (1 << 31) - 1})
        talk.machine.increment_flow_control_window((1 << 31) - 1 - 65_535)
        talk.flush()
        assert gone.wait(2 * HANG_SECONDS)

    def requests() -> Iterator[Any]:
        for _ in range(1000):
            yield service.GetPipelineRequest(name="a" * 100_000)

    opened = dial(peer(script), requests())
    cancelled(opened, "sender", "_wait", "send")
    gone.set()


def test_cancel_before_anything(dial: Open) -> None:
    opened = dial("127.0.0.1:1")
    opened.call.cancel()
    with pytest.raises(ServerUnavailableError, match="the connection was closed"):
        opened.call.next()


def test_a_peer_that_takes_no_request_is_lost_to_the_reader_too(
    peer: Any, dial: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "SEND_SECONDS", 0.2)
    monkeypatch.setattr(inflow, "CLIENT_PING_SECONDS", 60.0)
    gone = threading.Event()

    def script(talk: Any) -> None:
        talk.greet({SettingCodes.INITIAL_WINDOW_SIZE: (1 << 31) - 1})
        talk.machine.increment_flow_control_window((1 << 31) - 1 - 65_535)
        talk.flush()
        assert gone.wait(2 * HANG_SECONDS)

    opened = dial(
        peer(script), (service.GetPipelineRequest(name="a" * 100_000) for _ in range(1000))
    )
    with pytest.raises(ServerUnavailableError):
        opened.next()
    gone.set()


def test_a_refusal_in_the_middle_of_the_request(
    peer: Any, dial: Open, status_of: Callable[[InfeedError], Any]
) -> None:
    """The answer counts, whatever becomes of the rest of the request."""
    told = status_of(PipelineNotFoundError("no pipeline"))
    trailers = [("grpc-status", "5"), *((k, encode(v)) for k, v in told.trailing_metadata)]

    def script(talk: Any) -> None:
        talk.greet()
        talk.answer([*answer_headers(), *trailers], end=True)
        talk.machine.reset_stream(1, 0)
        talk.flush()
        while talk.socket.recv(1 << 16):
            pass

    requests = (service.GetPipelineRequest(name="a" * 1000) for _ in range(1000))
    with pytest.raises(PipelineNotFoundError, match=r"^no pipeline$"):
        dial(peer(script), requests).call.next()


def answer_headers() -> list[tuple[str, str]]:
    return [(":status", "200"), ("content-type", "application/grpc")]


def test_a_bug_is_not_taken_for_a_loss(
    peer: Any, dial: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> int:
        raise ZeroDivisionError("mine")

    opened = dial(peer(answering()))
    monkeypatch.setattr(opened.call._exchange, "read", broken)
    with pytest.raises(ZeroDivisionError, match=r"^mine$"):
        opened.call.next()


def test_many_calls_leave_nothing_behind(peer: Any, dial: Open) -> None:
    address = peer(answering(STREAM))
    before = set(threading.enumerate())
    for _ in range(20):
        opened = Opened(address, [service.GetPipelineRequest()], None)
        assert opened.rest() == SEVERAL
        opened.call.close()
    until(lambda: set(threading.enumerate()) <= before)  # the peer's own threads too


GOOD = service.GetPipelineRequest(name="x").SerializeToString()


@pytest.mark.parametrize(
    ("messages", "trailers", "error", "told"),
    [
        ([], TRAILERS, ProtocolError, "answered without a message"),
        ([GOOD, GOOD], TRAILERS, ProtocolError, "answered with two messages"),
        ([b"\xff"], TRAILERS, ProtocolError, "sent a message that cannot be parsed"),
        ([GOOD], [("grpc-status", "14")], ServerUnavailableError, "no reason given"),
    ],
)
def test_the_only_message_and_a_good_end(
    peer: Any,
    dial: Open,
    messages: list[bytes],
    trailers: Any,
    error: type[InfeedError],
    told: str,
) -> None:
    opened = dial(peer(answering(*map(message, messages), trailers=trailers)))
    with pytest.raises(error, match=told):
        only_message(opened.call, service.GetPipelineRequest)


def test_the_socket_is_closed_when_nobody_sends_any_more(peer: Any, dial: Open) -> None:
    """Its number may be that of another file from then on."""
    order: list[str] = []
    opened = dial(peer(answering()))
    assert opened.rest() == []
    call: Any = opened.call
    join, close = call._sender.join, call._link.close

    def joining(seconds: float) -> None:
        join(seconds)
        order.append("nobody sends")

    def closing() -> None:
        close()
        order.append("closed")

    call._sender.join, call._link.close = joining, closing
    call.close()
    assert order == ["nobody sends", "closed"]


def test_requests_that_fail_end_the_call(peer: Any, dial: Open) -> None:
    """Or the peer would wait for a request, and the reader for the peer."""

    def requests() -> Iterator[Any]:
        raise LookupError("no such step")
        yield

    def script(talk: Any) -> None:
        talk.greet()
        talk.until_closed()

    opened = dial(peer(script), requests())
    with pytest.raises(LookupError, match="no such step"):
        opened.next()


def test_a_server_that_drains_is_told_of_and_ends_what_it_began(peer: Any, dial: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.send(talk.frame(7, 0, 0, (1).to_bytes(4, "big") + bytes(4) + b"leaving"))
        talk.data(message(b"owed"))
        talk.answer(TRAILERS, end=True)
        talk.until_closed()

    opened = dial(peer(script))
    assert opened.next() == b"owed"
    assert opened.draining == 1
    assert opened.next() is None
