"""The intake of a stream: what goes wrong there reaches the answering side, in its turn."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from infeed.errors import InfeedError, InvalidRequestError
from infeed.v1 import stream_pb2
from infeed_server.rpc.call import PeerGoneError
from infeed_server.rpc.encoder import Encoder
from infeed_server.rpc.stream import Intake, Once

BATCH = stream_pb2.StreamBatchesRequest(batch=stream_pb2.BatchRequest(request_id=7))


class FakeStream:
    """Takes requests and never answers them."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def submit(self, _: stream_pb2.BatchRequest) -> Future[Any]:
        if self._error:
            raise self._error
        return Future()


class Numbered(Encoder):
    """Gives an answer that is the request's id, at once."""

    def __init__(self) -> None: ...

    def encode(self, stream: Any, request_id: int, answer: Future[Any]) -> Future[Any]:
        encoded: Future[Any] = Future()
        encoded.set_result(request_id)
        return encoded


def taken_in(requests: Iterator[Any], error: Exception | None = None) -> list[Any]:
    """All that an intake makes of requests."""
    stream: Any = FakeStream(error)
    intake = Intake(stream, Numbered(), requests, lambda: None)
    intake.start()
    result = []
    while (pending := intake.next(60)) is not None:
        result.append(pending)
    return result


def test_requests_keep_their_order_and_ids() -> None:
    requests = [
        stream_pb2.StreamBatchesRequest(batch=stream_pb2.BatchRequest(request_id=number))
        for number in (5, 3, 9)
    ]
    assert [pending.result() for pending in taken_in(iter(requests))] == [5, 3, 9]


def test_an_error_stands_behind_the_good_requests() -> None:
    again = stream_pb2.StreamBatchesRequest(open=stream_pb2.StreamOpen(pipeline="x"))
    first, error = taken_in(iter([BATCH, again, BATCH]))
    assert first.result() == 7
    assert isinstance(error, InvalidRequestError)


def test_more_requests_than_may_wait() -> None:
    def endless() -> Iterator[Any]:
        while True:
            yield BATCH

    stream: Any = FakeStream()
    intake = Intake(stream, Numbered(), endless(), lambda: None)
    intake._run()  # to its end, before anybody takes anything out
    taken = [intake.next(1) for _ in range(1025)]
    assert isinstance(taken[-1], InvalidRequestError)
    assert "more than 1024 requests wait for their answer" in str(taken[-1])
    assert not any(isinstance(pending, InfeedError) for pending in taken[:-1])


@pytest.mark.parametrize("error", [RuntimeError("no more threads"), KeyError("slots")])
def test_a_failure_of_ours_is_not_taken_for_the_end(error: Exception) -> None:
    (told,) = taken_in(iter([BATCH]), error)
    assert told is error


def test_a_peer_that_is_gone_is_no_error() -> None:
    def lost() -> Iterator[Any]:
        yield BATCH
        raise PeerGoneError

    assert len(taken_in(lost())) == 1


def test_a_stopped_intake_wakes_who_waits() -> None:
    stream: Any = FakeStream()
    intake = Intake(stream, Numbered(), iter(()), lambda: None)
    with pytest.raises(queue.Empty):
        intake.next(0.01)
    intake.stop()
    assert intake.stopped
    assert intake.next(60) is None


def test_once() -> None:
    calls: list[int] = []
    once = Once(lambda: calls.append(1))
    once()
    once()
    assert calls == [1]
