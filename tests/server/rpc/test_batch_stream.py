"""A stream's request reader and responses: order, errors, heartbeats and clean-up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from infeed.shared.errors import (
    InfeedError,
    InvalidRequestError,
    PermissionDeniedError,
)
from infeed.shared.report import ServerReport
from infeed.v1 import stream_pb2
from infeed_server.engines.monitor import Monitor
from infeed_server.observe.jobs import Jobs
from infeed_server.rpc import batch_stream as module
from infeed_server.rpc.batch_encoder import BatchEncoder, EncodedAnswer
from infeed_server.rpc.batch_stream import BatchStreams
from infeed_server.rpc.request_reader import RequestReader
from infeed_server.rpc.trainer_log import TrainerLog

BATCH = stream_pb2.StreamBatchesRequest(batch=stream_pb2.BatchRequest(request_id=7))


class FakeStream:
    """Accepts requests and never answers them."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def submit(self, _: stream_pb2.BatchRequest, span: Any = None) -> Future[Any]:
        if self._error:
            raise self._error
        return Future()


class RequestIdEncoder(BatchEncoder):
    """Returns the request's id as the encoded answer."""

    def __init__(self) -> None: ...

    def encode(
        self, stream: Any, request: stream_pb2.BatchRequest, answer: Future[Any], span: Any = None
    ) -> Future[Any]:
        encoded: Future[Any] = Future()
        encoded.set_result(request.request_id)
        return encoded


def read_all(requests: Iterator[Any], error: Exception | None = None) -> list[Any]:
    """Returns what a reader makes of requests."""
    stream: Any = FakeStream(error)
    reader = RequestReader(stream, RequestIdEncoder(), requests, lambda: None, lambda _: None)
    reader._run()
    return take_all(reader)


def take_all(reader: RequestReader) -> list[Any]:
    """Returns the answers and errors that are ready, up to the end."""
    result: list[Any] = []
    while not reader.ended:
        try:
            answer = reader.take()
        except Exception as error:  # noqa: BLE001 - a result
            result.append(error)
        else:
            result += [] if answer is None else [answer]
    return result


def test_too_many_pending_requests_are_an_error() -> None:
    def endless() -> Iterator[Any]:
        while True:
            yield BATCH

    stream: Any = FakeStream()
    reader = RequestReader(stream, RequestIdEncoder(), endless(), lambda: None, lambda _: None)
    reader._run()  # to its end, before any `take`
    results = take_all(reader)
    assert len(results) == 1025
    assert isinstance(results[-1], InvalidRequestError)
    assert "more than 1024 requests are unanswered" in str(results[-1])
    assert not any(isinstance(pending, InfeedError) for pending in results[:-1])


REPORT = stream_pb2.StreamBatchesRequest(report=stream_pb2.TrainerReport(seconds=1.0))


def test_reports_without_end_are_an_error() -> None:
    due = iter([True, *[False] * 300, True, *[False] * 301])
    read = 0

    def endless() -> Iterator[Any]:
        nonlocal read
        while True:
            read += 1
            yield REPORT

    stream: Any = FakeStream()
    reader = RequestReader(
        *(stream, RequestIdEncoder(), endless(), lambda: None),
        lambda _: ServerReport() if next(due) else None,
    )
    reader._run()
    (error,) = take_all(reader)
    assert isinstance(error, InvalidRequestError)
    assert "more than 300 reports came before they were due; send one in 1 s" in str(error)
    assert read == 1 + 300 + 1 + 301


def test_reports_of_a_caller_without_access_are_an_error() -> None:
    def check_access() -> None:
        raise PermissionDeniedError("the token was revoked")

    reports: list[Any] = []
    stream: Any = FakeStream()
    requests = iter([REPORT])
    reader = RequestReader(stream, RequestIdEncoder(), requests, check_access, reports.append)
    reader._run()
    (error,) = take_all(reader)
    assert isinstance(error, PermissionDeniedError)
    assert reports == []


def test_lost_client_ends_the_requests_without_error() -> None:
    def lost() -> Iterator[Any]:
        yield BATCH
        raise grpc.RpcError

    assert len(read_all(lost())) == 1


def test_stop_wakes_a_wait_and_ends_the_answers() -> None:
    stream: Any = FakeStream()
    reader = RequestReader(stream, RequestIdEncoder(), iter(()), lambda: None, lambda _: None)
    assert not reader.wait(0.01)
    assert not reader.ended
    reader.stop()
    assert reader.wait(60)
    assert reader.ended


def test_answer_is_taken_once_it_is_ready() -> None:
    answer: Future[Any] = Future()
    encoder: Any = SimpleNamespace(encode=lambda *_: answer)
    stream: Any = FakeStream()
    reader = RequestReader(stream, encoder, iter([BATCH]), lambda: None, lambda _: None)
    reader._run()
    assert reader.wait(0)
    assert reader.take() is None
    assert not reader.wait(0)
    answer.set_result("batch")
    assert reader.wait(0)
    assert reader.take() == "batch"
    assert not reader.ended
    assert reader.take() is None
    assert reader.ended


def test_nothing_is_submitted_after_stop() -> None:
    """A closed session would never free the request."""
    submitted: list[Any] = []
    stream: Any = SimpleNamespace(submit=lambda request, _: submitted.append(request))

    def requests() -> Iterator[Any]:
        yield BATCH
        reader.stop()
        yield BATCH

    reader = RequestReader(stream, RequestIdEncoder(), requests(), lambda: None, lambda _: None)
    reader._run()
    assert len(submitted) == 1
    assert reader.ended


class FakeCall:
    """One StreamBatches call without a server; also its catalog, caller and encoder."""

    def __init__(self, *, is_active: bool = True, tracer: Any = None) -> None:
        fake: Any = self
        self.streams = BatchStreams(
            fake, fake, Monitor(), TrainerLog(), Jobs(lambda _: ServerReport()), tracer
        )
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

    def open(self, request: Any) -> Any:
        def close() -> None:
            self.closed += 1

        def on_sent() -> None:
            self.sent += 1

        return SimpleNamespace(
            pipeline=SimpleNamespace(name="n"),
            session=SimpleNamespace(close=close, on_sent=on_sent, shortage_seconds=lambda: 0.0),
            submit=lambda request, span: None,
            seed=7,
            batch_size=4,
            world_size=1,
            opened_message=stream_pb2.StreamOpened,
        )

    def visible_to(self, caller: Any) -> Any:
        return self

    def encode(
        self, stream: Any, request: stream_pb2.BatchRequest, answer: Any, span: Any = None
    ) -> Future[Any]:
        self.answers.append(Future())
        return self.answers[-1]

    def serve(self, requests: Iterator[Any]) -> Iterator[bytes]:
        call: Any = self
        return self.streams.serve(requests, call)


OPEN = stream_pb2.StreamBatchesRequest(open=stream_pb2.StreamOpen(pipeline="n"))


@pytest.fixture
def waiting_client() -> Iterator[Iterator[Any]]:
    """Yields a request for one batch, then blocks until the test ends."""
    is_over = threading.Event()

    def messages() -> Iterator[Any]:
        yield OPEN
        yield BATCH
        is_over.wait(60)

    yield messages()
    is_over.set()


@pytest.fixture
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes heartbeats follow each other at once."""
    monkeypatch.setattr(module, "_HEARTBEAT_INTERVAL_SECONDS", 0.001)


def test_call_that_ended_before_its_callback_closes_the_session(
    waiting_client: Iterator[Any],
) -> None:
    call = FakeCall(is_active=False)
    assert next(call.serve(waiting_client), None) is None
    assert call.closed == 1


def test_closed_generator_closes_the_session_once(waiting_client: Iterator[Any]) -> None:
    call = FakeCall()
    answer: Any = call.serve(waiting_client)
    next(answer)
    answer.close()
    call.end()
    assert call.closed == 1


@pytest.mark.parametrize("heartbeats", [0, 1])
def test_call_that_ends_before_an_answer_closes_the_session(
    waiting_client: Iterator[Any], frequent_heartbeats: None, heartbeats: int
) -> None:
    call = FakeCall()
    answer = call.serve(waiting_client)
    assert next(answer)
    while not call.answers:
        next(answer)
    for _ in range(heartbeats):
        assert next(answer) is module._HEARTBEAT
    call.end()
    assert next(answer, None) is None
    assert call.closed == 1


def test_batch_of_a_peer_that_leaves_with_it_counts_as_sent(
    waiting_client: Iterator[Any], frequent_heartbeats: None
) -> None:
    events: list[str] = []
    traces = SimpleNamespace(close=lambda: events.append("stream closed"))
    call = FakeCall(tracer=SimpleNamespace(open_stream=lambda *_: traces))
    answer = call.serve(waiting_client)
    while not call.answers:
        next(answer)
    batch = deque([b"batch"])
    span: Any = SimpleNamespace(
        trace_id="1", add=lambda stage, _: events.append(stage), end=events.append
    )
    call.answers[0].set_result(EncodedAnswer(batch, 4, 5, span))
    while next(answer) != b"batch":
        pass
    call.end()
    assert list(answer) == []
    assert events == ["send", "sent", "stream closed"]


def event(message: bytes) -> str | None:
    """Returns the kind of a response."""
    return stream_pb2.StreamBatchesResponse.FromString(message).WhichOneof("event")


def test_half_closed_stream_ends_without_a_wait() -> None:
    call = FakeCall()
    answer = call.serve(iter([OPEN]))
    assert [event(message) for message in answer] == ["opened"]  # no heartbeat, which takes 5 s


def test_stream_that_opens_during_a_drain_announces_it(waiting_client: Iterator[Any]) -> None:
    call = FakeCall()
    call.streams.drain()
    answer = call.serve(waiting_client)
    assert [event(next(answer)) for _ in range(2)] == ["opened", "draining"]
