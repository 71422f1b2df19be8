"""The request reader of a stream: too many requests, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from infeed.shared.errors import (
    InfeedError,
    InvalidRequestError,
)
from infeed.v1 import stream_pb2
from infeed_server.rpc.batch_encoder import BatchEncoder
from infeed_server.rpc.request_reader import RequestReader

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


def test_stop_wakes_a_wait_and_ends_the_answers() -> None:
    stream: Any = FakeStream()
    reader = RequestReader(stream, RequestIdEncoder(), iter(()), lambda: None, lambda _: None)
    assert not reader.wait(0.01)
    assert not reader.ended
    reader.stop()
    assert reader.wait(60)
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
