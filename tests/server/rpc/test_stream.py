"""The intake of a stream: what goes wrong there reaches the answering side, in its turn."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.errors import InfeedError, InvalidRequestError
from infeed.v1 import stream_pb2
from infeed_server.engines.monitor import Silent
from infeed_server.rpc import stream as module
from infeed_server.rpc.call import Framed, PeerGoneError, framed
from infeed_server.rpc.encoder import Encoded, Encoder
from infeed_server.rpc.stream import Intake, Once, serve_stream

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


def test_a_stopped_intake_submits_nothing_and_answers_nothing() -> None:
    """A session that is closed would never let go of it."""
    submitted: list[Any] = []
    stream: Any = SimpleNamespace(submit=submitted.append)

    def requests() -> Iterator[Any]:
        yield BATCH
        intake.stop()
        yield BATCH

    intake = Intake(stream, Numbered(), requests(), lambda: None)
    intake._run()
    assert len(submitted) == 1
    assert intake.next(60) is None


def test_once() -> None:
    calls: list[int] = []
    once = Once(lambda: calls.append(1))
    once()
    once()
    assert calls == [1]


class Served:
    """One call of a stream that is served without a server: who asks, and what is held for it."""

    def __init__(self, *, is_there: bool = True) -> None:
        self.caller = SimpleNamespace(require=lambda name: None)
        self.answers: list[Future[Any]] = []
        """To each request."""
        self.closed = self.sent = 0
        self._is_there = is_there
        self._gone: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._gone.append(callback)
        return self._is_there

    def leave(self) -> None:
        """The peer goes."""
        for callback in self._gone:
            callback()

    def open(self, request: Any) -> Any:
        def close() -> None:
            self.closed += 1

        def sent() -> None:
            self.sent += 1

        return SimpleNamespace(
            pipeline=SimpleNamespace(name="n"),
            session=SimpleNamespace(close=close, sent=sent),
            submit=lambda request: None,
            opened=stream_pb2.StreamOpened,
        )

    def seen_by(self, caller: Any) -> Any:
        return self

    def encode(self, stream: Any, request_id: int, answer: Any) -> Future[Any]:
        self.answers.append(Future())
        return self.answers[-1]

    def serve(self, messages: Iterator[bytes]) -> Iterator[Framed]:
        everything: Any = self
        return serve_stream(everything, everything, Silent(), messages, everything)


OPEN = stream_pb2.StreamBatchesRequest(open=stream_pb2.StreamOpen(pipeline="n"))


@pytest.fixture
def silent() -> Iterator[Iterator[bytes]]:
    """What a peer sends that asks for one batch and then says nothing until the test is over."""
    is_over = threading.Event()

    def messages() -> Iterator[bytes]:
        yield OPEN.SerializeToString()
        yield BATCH.SerializeToString()
        is_over.wait(60)

    yield messages()
    is_over.set()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits hears at once that nothing is there yet."""
    monkeypatch.setattr(module, "_HEARTBEAT_SECONDS", 0.001)


def test_a_peer_that_is_gone_before_it_asks() -> None:
    def lost() -> Iterator[bytes]:
        raise PeerGoneError
        yield

    assert list(Served().serve(lost())) == []


def test_a_peer_that_is_gone_before_it_is_answered(silent: Iterator[bytes]) -> None:
    call = Served(is_there=False)
    assert next(call.serve(silent), None) is None
    assert call.closed == 1


def test_an_answer_that_is_given_up_closes_its_session_once(silent: Iterator[bytes]) -> None:
    call = Served()
    answer: Any = call.serve(silent)
    next(answer)
    answer.close()
    call.leave()
    assert call.closed == 1


@pytest.mark.parametrize("heartbeats", [0, 1])
def test_a_peer_that_goes_while_it_is_to_be_answered(
    silent: Iterator[bytes], impatient: None, heartbeats: int
) -> None:
    call = Served()
    answer = call.serve(silent)
    assert next(answer)
    while not call.answers:
        next(answer)
    for _ in range(heartbeats):
        assert next(answer) is module._HEARTBEAT
    call.leave()
    assert next(answer, None) is None
    assert call.closed == 1


def test_a_stream_whose_batches_are_cancelled_ends(
    silent: Iterator[bytes], impatient: None
) -> None:
    call = Served()
    answer = call.serve(silent)
    while not call.answers:
        next(answer)
    call.answers[0].cancel()
    call.answers[0].set_running_or_notify_cancel()
    assert all(each is module._HEARTBEAT for each in answer)


def test_a_batch_that_was_sent_is_held_by_nobody(silent: Iterator[bytes], impatient: None) -> None:
    call = Served()
    answer = call.serve(silent)
    while not call.answers:
        next(answer)
    batch = framed([b"batch"])
    call.answers[0].set_result(Encoded(batch, 4, 5))
    while (sent := next(answer)) is not batch:
        assert sent is module._HEARTBEAT
    assert (bool(batch), call.sent) == (True, 0)
    next(answer)
    assert (bool(batch), call.sent) == (False, 1)
