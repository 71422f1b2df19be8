"""Streams of batches without a server: too many requests, clean-up, draining and lost peers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.shared.errors import InvalidRequestError, PermissionDeniedError
from infeed.v1 import stream_pb2
from infeed_server.rpc import batch_stream as module
from infeed_server.rpc.answers import EncodedAnswer
from infeed_server.rpc.batch_stream import BatchStreams
from infeed_server.serving.instrument import Instrument
from infeed_server.serving.refused import RefusedBatches

OPEN = stream_pb2.StreamBatchesRequest(open=stream_pb2.StreamOpen(pipeline="n"))
BATCH = stream_pb2.StreamBatchesRequest(batch=stream_pb2.BatchRequest(request_id=7))
REPORT = stream_pb2.StreamBatchesRequest(report=stream_pb2.TrainerReport(seconds=1.0))


class FakeCall:
    """One StreamBatches call without a server; also its context, catalog and encoder."""

    def __init__(self, *, is_active: bool = True, trace: Any = None) -> None:
        fake: Any = self
        instrument = Instrument()
        if trace:
            instrument.trace = trace  # type: ignore[method-assign]
        self.streams = BatchStreams(fake, fake, instrument, RefusedBatches())
        self.context = self
        self.caller = SimpleNamespace(require_access=lambda name: None)
        self.answers: list[Future[Any]] = []
        """The answer to each request."""
        self.closed = self.sent = 0
        self._is_active = is_active
        self._callbacks: list[Callable[[], None]] = []

    def peer(self) -> str:
        return "peer"

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return self._is_active

    def end(self) -> None:
        """Ends the call."""
        for callback in self._callbacks:
            callback()

    def visible_to(self, caller: Any) -> Any:
        return self

    def open(self, request: Any, *, is_protected: bool) -> Any:
        def close() -> None:
            self.closed += 1

        def on_sent() -> None:
            self.sent += 1

        return SimpleNamespace(
            pipeline=SimpleNamespace(name="n"),
            session=SimpleNamespace(close=close, on_sent=on_sent, held_seconds=dict),
            submit=lambda request, span: None,
            seed=7,
            batch_size=4,
            world_size=1,
            opened_message=stream_pb2.StreamOpened,
            payload_bytes=0,
        )

    def encode(
        self, stream: Any, request: stream_pb2.BatchRequest, answer: Any, span: Any, blocks: Any
    ) -> Future[Any]:
        self.answers.append(Future())
        return self.answers[-1]

    def serve(self, *requests: Any) -> Any:
        """Serves a client that sends these requests, and waits until the test ends."""
        call: Any = self
        return self.streams.serve(iter(requests), call)


@pytest.fixture
def waiting() -> Iterator[Callable[..., Iterator[Any]]]:
    """Makes requests of a client that then waits until the test ends."""
    is_over = threading.Event()

    def make(*messages: Any) -> Iterator[Any]:
        yield from messages
        is_over.wait(60)

    yield make
    is_over.set()


@pytest.fixture
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes heartbeats follow each other at once."""
    monkeypatch.setattr(module, "_HEARTBEAT_INTERVAL_SECONDS", 0.001)


def event(message: bytes) -> str | None:
    """Returns the kind of a response."""
    return stream_pb2.StreamBatchesResponse.FromString(message).WhichOneof("event")


def test_too_many_pending_requests_are_an_error(eventually: Any) -> None:
    call = FakeCall()
    responses = call.serve(OPEN, *[BATCH] * 1025)
    assert event(next(responses)) == "opened"
    eventually(lambda: len(call.answers) == 1024, "the requests are read")
    for answer in call.answers:
        answer.set_result(EncodedAnswer(iter([b"x"]), 1, None, 0, 0))
    with pytest.raises(InvalidRequestError, match="has 1024 unanswered requests"):
        list(responses)
    assert call.sent == 1024


def test_report_of_a_caller_without_access_is_an_error() -> None:
    call = FakeCall()
    responses = call.serve(OPEN, REPORT)
    allowed = iter([True])  # the opening alone

    def refuse(name: str) -> None:
        if not next(allowed, False):
            raise PermissionDeniedError("the token was revoked")

    call.caller.require_access = refuse
    with pytest.raises(PermissionDeniedError):
        list(responses)


def test_nothing_is_submitted_to_a_closed_session(eventually: Any) -> None:
    call = FakeCall()

    def requests() -> Iterator[Any]:
        yield OPEN
        yield BATCH
        call.end()
        yield BATCH

    fake: Any = call
    assert [event(message) for message in call.streams.serve(requests(), fake)][:1] == ["opened"]
    eventually(lambda: call.closed == 1, "the session is closed")
    assert len(call.answers) == 1


def test_call_that_ended_before_its_callback_closes_the_session() -> None:
    call = FakeCall(is_active=False)
    assert list(call.serve(OPEN, BATCH)) == []
    assert call.closed == 1


@pytest.mark.parametrize("count", [1, 2])
def test_batch_of_a_peer_that_leaves_with_it_counts_as_sent(
    waiting: Any, frequent_heartbeats: None, count: int
) -> None:
    """It leaves after one message: with more, the batch was not sent."""
    events: list[str] = []
    traces = SimpleNamespace(close=lambda: events.append("stream closed"))
    call = FakeCall(trace=lambda *_: traces)
    fake: Any = call
    responses: Any = call.streams.serve(waiting(OPEN, BATCH), fake)
    while not call.answers:
        next(responses)
    span: Any = SimpleNamespace(
        trace_id="1", add=lambda stage, _: events.append(stage), end=events.append
    )
    call.answers[0].set_result(EncodedAnswer(iter([b"batch"] * count), count, 4, 5, 40, span))
    while next(responses) != b"batch":
        pass
    call.end()
    responses.close()  # gRPC asks for no other message
    assert events == [*(["send", "sent"] if count == 1 else []), "stream closed"]
    assert (fake.trainer.position == 40) == (count == 1)


def test_stream_that_opens_during_a_drain_announces_it(waiting: Any) -> None:
    call = FakeCall()
    call.streams.drain()
    fake: Any = call
    responses = call.streams.serve(waiting(OPEN, BATCH), fake)
    assert [event(next(responses)) for _ in range(2)] == ["opened", "draining"]
