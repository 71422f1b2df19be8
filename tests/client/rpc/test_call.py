"""gRPC calls to peers that send hand-made messages and statuses."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import h2.events
import pytest
import xxhash
from h2.settings import SettingCodes
from tests.client.waiting import HANG_SECONDS, blocked_in, until

from infeed.http2 import socket as receiver
from infeed.http2 import socket as socket_module
from infeed.rpc import call as call_module
from infeed.rpc.call import MAX_MESSAGE_BYTES, GrpcCall, read_single_response
from infeed.shared.errors import (
    InfeedError,
    ProtocolError,
    ServerUnavailableError,
)
from infeed.v1 import feed_service_pb2 as service

TRAILERS = [("grpc-status", "0")]


class Opened:
    """A call, and the calls of its callbacks."""

    def __init__(self, address: str, requests: Any, timeout: float | None) -> None:
        self.draining = 0
        self.call = GrpcCall(
            address,
            "/infeed.v1.FeedService/Test",
            iter(requests),
            timeout=timeout,
            on_draining=self._count,
        )

    def _count(self) -> None:
        self.draining += 1

    def next(self) -> bytes | None:
        """Returns the next message."""
        size = self.call.next()
        if size is None:
            return None
        message = bytearray(size)
        self.call.read_into(memoryview(message))
        return bytes(message)

    def read_all(self) -> list[bytes]:
        return list(iter(self.next, None))


Open = Callable[..., Opened]


@pytest.fixture
def dial() -> Iterator[Open]:
    """Creates calls that are closed after the test."""
    calls: list[Opened] = []

    def dial(address: str, requests: Any = (), timeout: float | None = None) -> Opened:
        calls.append(Opened(address, requests, timeout))
        return calls[-1]

    yield dial
    for opened in calls:
        opened.call.close()


def message(body: bytes, compressed: int = 0) -> bytes:
    return bytes((compressed,)) + len(body).to_bytes(4, "big") + body


def responding(*pieces: bytes, trailers: Any = TRAILERS, headers: Any = None) -> Any:
    """A peer that responds with these DATA frames between headers and trailers."""

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
    """A peer that responds with headers only."""

    def script(talk: Any) -> None:
        talk.greet()
        talk.answer(list(headers), end=True)
        talk.until_closed()

    return script


SEVERAL = [b"one", b"", b"x" * 5000, b"four"]
STREAM = b"".join(map(message, SEVERAL))


def test_read_beyond_the_message_is_refused(peer: Any, dial: Open) -> None:
    opened = dial(peer(responding(STREAM)))
    assert opened.call.next() == 3
    with pytest.raises(ProtocolError, match="ends 2 bytes early"):
        opened.call.read_into(memoryview(bytearray(5)))
    opened.call.read_into(memoryview(bytearray(2)))
    with pytest.raises(ProtocolError, match="ends 4 bytes early"):
        opened.call.read_into(memoryview(bytearray(5)))


def test_request_headers_and_messages(peer: Any, dial: Open) -> None:
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
    assert dial(address, requests, timeout=30).read_all() == []
    assert seen.pop("body") == b"".join(
        message(request.SerializeToString()) for request in requests
    )
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
    assert dial(address).read_all() == []
    assert "grpc-timeout" not in seen
    seen.clear()
    dial(address, timeout=100_000).read_all()
    assert seen["grpc-timeout"] == "99999999m"  # at most eight digits


@pytest.mark.parametrize("size", [1, 4, 5, 7])
@pytest.mark.parametrize(
    ("trailers", "error", "text"),
    [
        (TRAILERS, ProtocolError, "sent a truncated message"),
        ([("grpc-status", "5"), ("grpc-message", "no")], InfeedError, "NOT_FOUND: no"),
        ([("x", "y")], ServerUnavailableError, "without a status"),
    ],
)
def test_stream_that_ends_within_a_message(
    peer: Any, dial: Open, size: int, trailers: Any, error: type[InfeedError], text: str
) -> None:
    opened = dial(peer(responding(message(b"one")[:size], trailers=trailers)))
    with pytest.raises(error, match=text):
        opened.next()


@pytest.mark.parametrize("sent", [b"", b"\0\0", message(b"a long one")[:-1]])
def test_closed_connection_is_a_lost_server(peer: Any, dial: Open, sent: bytes) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.data(sent)

    opened = dial(peer(script))
    with pytest.raises(ServerUnavailableError, match=r"no server at 127\.0\.0\.1:\d+: "):
        opened.next()


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (message(b"one", compressed=1), "compressed"),
        (message(b"one", compressed=255), "compressed"),
        (b"\0\xff\xff\xff\xff", "of 4294967295 bytes; the limit is 67108864"),
        (b"\0" + (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"), "of 67108865 bytes"),
    ],
)
def test_invalid_messages_are_refused(peer: Any, dial: Open, sent: bytes, text: str) -> None:
    opened = dial(peer(responding(sent)))
    with pytest.raises(ProtocolError, match=rf"127\.0\.0\.1:\d+ sent an? .*{text}"):
        opened.call.next()


PAGE = b"<html><body>This is not the page that you are looking for.</body></html>"


@pytest.mark.parametrize("body", [(), (PAGE,)])
@pytest.mark.parametrize(
    ("status", "error"), [("503", ServerUnavailableError), ("404", ProtocolError)]
)
def test_response_of_a_proxy_is_its_error(
    peer: Any, dial: Open, status: str, error: type[InfeedError], body: tuple[bytes, ...]
) -> None:
    headers = [(":status", status), ("content-type", "text/html")]
    script = responding(*body, headers=headers, trailers=[("x", "y")])
    opened = dial(peer(script if body else only_headers(*headers)))
    with pytest.raises(error, match=f"HTTP status {status}"):
        opened.next()


@pytest.mark.parametrize("timeout", [0.1, None])
def test_connect_timeout_is_a_lost_server(
    full: str, dial: Open, timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a timeout of the call and without, it is a lost server, and a feed retries."""
    monkeypatch.setattr(
        call_module, "CONNECT_TIMEOUT_SECONDS", 10 * HANG_SECONDS if timeout else 0.1
    )
    opened = dial(full, timeout=timeout)
    with pytest.raises(ServerUnavailableError, match="did not respond in time"):
        opened.call.next()


@pytest.mark.parametrize("timeout", [HANG_SECONDS, None])
def test_peer_that_never_speaks_costs_the_connect_timeout(
    peer: Any, dial: Open, timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts connections for a process that is stopped."""
    monkeypatch.setattr(call_module, "CONNECT_TIMEOUT_SECONDS", 0.2)
    over = threading.Event()
    opened = dial(peer(lambda talk: over.wait(2 * HANG_SECONDS)), timeout=timeout)
    try:
        began = time.monotonic()
        with pytest.raises(ServerUnavailableError, match="did not respond in time"):
            opened.call.next()
        assert began + HANG_SECONDS / 4 > time.monotonic()
    finally:
        over.set()


@pytest.fixture
def cancel_while(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Cancels a call from another thread while this one reads, once its reader or its sender is
    blocked in the given functions. All timeouts of the call are far longer than the test."""
    monkeypatch.setattr(socket_module, "SEND_TIMEOUT_SECONDS", 10 * HANG_SECONDS)
    monkeypatch.setattr(call_module, "CONNECT_TIMEOUT_SECONDS", 10 * HANG_SECONDS)
    monkeypatch.setattr(call_module, "_JOIN_TIMEOUT_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(receiver, "CLIENT_PING_INTERVAL_SECONDS", 10 * HANG_SECONDS)

    def cancel_and_read(opened: Opened, thread: str, *functions: str) -> None:
        reader = threading.current_thread()

        def blocked() -> bool:
            blocked_thread = reader if thread == "reader" else opened.call._sender
            return blocked_thread is not None and blocked_in(blocked_thread, *functions)

        def cancel() -> None:
            until(blocked)
            opened.call.cancel()

        canceller = threading.Thread(target=cancel, daemon=True)
        canceller.start()
        with pytest.raises(ServerUnavailableError):
            opened.read_all()
        canceller.join(HANG_SECONDS)
        assert not canceller.is_alive()
        opened.call.close()
        assert opened.call._sender is None or not opened.call._sender.is_alive()

    return cancel_and_read


def test_cancel_while_the_peer_reads_nothing(peer: Any, dial: Open, cancel_while: Any) -> None:
    """The sender holds the lock of the connection, and `cancel` must not wait for it."""
    cancelled = threading.Event()

    def script(talk: Any) -> None:
        # The largest windows, and no reads.
        talk.greet({SettingCodes.INITIAL_WINDOW_SIZE: (1 << 31) - 1})
        talk.machine.increment_flow_control_window((1 << 31) - 1 - 65_535)
        talk.flush()
        assert cancelled.wait(2 * HANG_SECONDS)

    def requests() -> Iterator[Any]:
        for _ in range(1000):
            yield service.GetPipelineRequest(name="a" * 100_000)

    opened = dial(peer(script), requests())
    cancel_while(opened, "sender", "_wait", "send")
    cancelled.set()


GOOD = service.GetPipelineRequest(name="x").SerializeToString()


@pytest.mark.parametrize(
    ("messages", "trailers", "error", "text"),
    [
        ([], TRAILERS, ProtocolError, "sent no response message"),
        ([GOOD, GOOD], TRAILERS, ProtocolError, "sent more than one response message"),
        ([b"\xff"], TRAILERS, ProtocolError, "sent a message that cannot be parsed"),
        ([GOOD], [("grpc-status", "14")], ServerUnavailableError, "no reason given"),
    ],
)
def test_read_single_response_errors(
    peer: Any,
    dial: Open,
    messages: list[bytes],
    trailers: Any,
    error: type[InfeedError],
    text: str,
) -> None:
    opened = dial(peer(responding(*map(message, messages), trailers=trailers)))
    with pytest.raises(error, match=text):
        read_single_response(opened.call, service.GetPipelineRequest)


def test_bit_flip_never_changes_the_description_of_a_pipeline() -> None:
    answer = service.GetPipelineResponse()
    answer.pipeline.name, answer.pipeline.sample_count, answer.pipeline.seed = "p", 1000, 17
    answer.checksum = xxhash.xxh3_64_intdigest(answer.SerializeToString())
    sent = answer.SerializeToString()

    class Answer:
        server = "peer"

        def __init__(self, data: bytes) -> None:
            self.sizes, self.data = iter([len(data), None]), data

        def next(self) -> int | None:
            return next(self.sizes)

        def read_into(self, buffer: memoryview) -> None:
            buffer[:] = self.data

    def read(data: bytes) -> Any:
        call: Any = Answer(data)
        return read_single_response(call, service.GetPipelineResponse)

    assert read(sent) == answer
    for bit in range(8 * len(sent)):
        flipped = bytearray(sent)
        flipped[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(ProtocolError):
            found = read(bytes(flipped)).pipeline
            if found.name == "p":  # another name is refused by the channel
                assert (found.sample_count, found.seed) == (1000, 17), bit


def test_failing_requests_end_the_call(peer: Any, dial: Open) -> None:
    """Otherwise the peer would wait for a request, and the reader for the peer."""

    def requests() -> Iterator[Any]:
        raise LookupError("no such step")
        yield

    def script(talk: Any) -> None:
        talk.greet()
        talk.until_closed()

    opened = dial(peer(script), requests())
    with pytest.raises(LookupError, match="no such step"):
        opened.next()


def test_draining_server_is_reported_and_completes_the_call(peer: Any, dial: Open) -> None:
    def script(talk: Any) -> None:
        talk.greet()
        talk.answer()
        talk.send(talk.frame(7, 0, 0, (1).to_bytes(4, "big") + bytes(4) + b"leaving"))
        talk.data(message(b"pending"))
        talk.answer(TRAILERS, end=True)
        talk.until_closed()

    opened = dial(peer(script))
    assert opened.next() == b"pending"
    assert opened.draining == 1
    assert opened.next() is None
