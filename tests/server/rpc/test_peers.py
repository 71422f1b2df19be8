"""StreamBatches, asked by peers that know the .proto, and by ones that do not keep to it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from infeed.errors import InvalidRequestError, UserCodeError
from infeed.v1 import stream_pb2
from infeed_server.rpc import stream as rpc_stream
from infeed_server.rpc.encoder import Encoder


def test_answers_come_in_order_and_end_when_the_peer_asks_no_more(live: Any, peer: Any) -> None:
    call = peer().open()
    for number in range(20):
        call.ask(4 * number, request_id=100 + number)
    answers, error = call.half_close().rest()
    assert error is None
    opened, *rest = answers
    assert opened.opened.fingerprint == "f" * 32
    assert (opened.opened.batch_size, opened.opened.batch_stride, opened.opened.seed) == (4, 4, 7)
    headers, chunks = rest[::2], rest[1::2]
    assert [answer.header.request_id for answer in headers] == list(range(100, 120))
    assert [answer.header.start for answer in headers] == list(range(0, 80, 4))
    assert all(answer.chunk.data for answer in chunks)
    assert live.held.sent == 20
    assert live.gauge("batches_total") == 20


def test_a_batch_that_was_sent_is_held_by_nobody(live: Any, peer: Any, eventually: Any) -> None:
    gc.disable()  # which would find what holds itself, some day
    try:
        call = peer().open()
        for number in range(5):
            call.ask(4 * number)
        kinds = [call.next().WhichOneof("event") for _ in range(11)]
        assert kinds[-2:] == ["header", "chunk"]
        # The stream is open and waits for requests.
        eventually(
            lambda: not any(ref() is not None for ref in live.held.made), "all five are gone"
        )
        assert len(live.held.made) == 5
    finally:
        gc.enable()


def test_the_engine_is_told_what_a_batch_takes(live: Any, peer: Any) -> None:
    call = peer().open(batch_size=9)
    call.next()
    assert live.held.weighed == 9 * 8


def test_what_waits_at_the_half_close_is_answered(live: Any, peer: Any, eventually: Any) -> None:
    live.held.held = True
    call = peer().open().ask(0).ask(4).half_close()
    eventually(lambda: live.gauge("queued_requests") == 2, "two requests wait")
    live.held.release()
    answers, error = call.rest()
    assert error is None
    kinds = [answer.WhichOneof("event") for answer in answers]
    assert kinds == ["opened", "header", "chunk", "header", "chunk"]


def test_a_stream_of_no_request_is_no_error(peer: Any) -> None:
    answers, error = peer().open().half_close().rest()
    assert [answer.WhichOneof("event") for answer in answers] == ["opened"]
    assert error is None


def test_options_of_the_stream_are_in_force(live: Any, peer: Any) -> None:
    call = peer().open(seed=0, batch_size=9, fingerprint="f" * 32).ask(3, 5).half_close()
    (opened, header, _), error = call.rest()
    assert error is None
    assert (opened.opened.seed, opened.opened.batch_size, opened.opened.batch_stride) == (0, 9, 9)
    assert list(header.header.mask) == [True] * 5 + [False] * 4
    request = live.held.sessions[0].requests[0]
    assert (request.seed, request.start, request.count, request.slots) == (0, 3, 5, 9)


GARBAGE = b"\xff\xfe no message"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda call: call.half_close(), "the first message of a stream must be StreamOpen"),
        (lambda call: call.ask(0), "the first message of a stream must be StreamOpen"),
        (lambda call: call.send(b""), "the first message of a stream must be StreamOpen"),
        (lambda call: call.send(GARBAGE), "a message of 13 bytes that is no StreamBatchesRequest"),
        (lambda call: call.open(batch_size=-1), "batch size -1 is outside of"),
        (lambda call: call.open(batch_size=1 << 40), "batch size 1099511627776 is outside of"),
        (lambda call: call.open(seed=-1), "seed -1 is outside of"),
        (lambda call: call.open(epochs=-1), "epochs -1 is negative"),
    ],
)
def test_a_stream_that_cannot_begin(
    live: Any, peer: Any, refusal: Any, spoil: Callable[[Any], Any], words: str
) -> None:
    answers, error = spoil(peer()).rest()
    code, told = refusal(error)
    assert answers == []
    assert code == "INVALID_ARGUMENT"
    assert isinstance(told, InvalidRequestError)
    assert told.message.startswith(words)
    assert live.gauge("streams") == 0


@pytest.mark.parametrize(
    ("options", "code", "reason", "words"),
    [
        ({"pipeline": "x"}, "NOT_FOUND", "PIPELINE_NOT_FOUND", "no pipeline 'x'.*: held, other"),
        ({"pipeline": ""}, "NOT_FOUND", "PIPELINE_NOT_FOUND", "no pipeline ''"),
        (
            {"fingerprint": "abc"},
            "FAILED_PRECONDITION",
            "FINGERPRINT_MISMATCH",
            "'held' has the fingerprint f+ here, not abc",
        ),
    ],
)
def test_a_stream_of_another_pipeline(
    peer: Any, refusal: Any, options: dict[str, Any], code: str, reason: str, words: str
) -> None:
    _, error = peer().open(**options).rest()
    found, told = refusal(error)
    assert (found, told.reason) == (code, reason)
    with pytest.raises(type(told), match=words):
        raise told


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda call: call.open(), "after StreamOpen, a stream takes BatchRequest only"),
        (lambda call: call.send(b""), "after StreamOpen, a stream takes BatchRequest only"),
        (lambda call: call.send(GARBAGE), "a message of 13 bytes that is no StreamBatchesRequest"),
        (lambda call: call.ask(0, 5), "5 positions asked for; .* takes 0 to 4"),
        (lambda call: call.ask(0, -1), "-1 positions asked for"),
        (lambda call: call.ask(8, min_position_count=-1), r"8 needs no -1 .*\(min_position_count"),
        (lambda call: call.ask(8, min_position_count=13), "a step of 1 ranks ends at 12 at most"),
        (lambda call: call.ask(8, step_end=-1), r"8 needs no -1 positions \(step_end"),
        (lambda call: call.ask(8, step_end=13), "a step of 1 ranks ends at 12 at most"),
        (lambda call: call.ask(-1), "position -1 is outside of"),
        (lambda call: call.ask((1 << 62) + 1), "position 4611686018427387905 is outside of"),
    ],
)
def test_a_wrong_message_ends_the_stream_behind_what_was_asked_before(
    live: Any,
    peer: Any,
    refusal: Any,
    eventually: Any,
    spoil: Callable[[Any], Any],
    words: str,
) -> None:
    call = peer().open().ask(0, request_id=1).ask(4, 0, request_id=2)
    answers, error = spoil(call).ask(8).rest()
    code, told = refusal(error)
    assert code == "INVALID_ARGUMENT"
    with pytest.raises(InvalidRequestError, match=words):
        raise told
    headers = [answer.header for answer in answers if answer.HasField("header")]
    assert [header.request_id for header in headers] == [1, 2]
    assert not any(headers[1].mask)
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")
    assert live.held.sessions[0].closed


def test_an_error_of_the_engine_ends_the_stream_behind_the_batches_before(
    live: Any, peer: Any, refusal: Any, eventually: Any
) -> None:
    call = peer().open().ask(0)
    assert [call.next().WhichOneof("event") for _ in range(3)] == ["opened", "header", "chunk"]
    live.held.error = UserCodeError("it raised", sample_id=3)
    answers, error = call.ask(4).ask(8).rest()
    code, told = refusal(error)
    assert answers == []
    assert (code, told.message) == ("FAILED_PRECONDITION", "it raised")
    assert told.metadata == {"sample_id": "3"}
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")


def test_an_error_without_a_name_is_internal(
    live: Any, peer: Any, refusal: Any, caplog: pytest.LogCaptureFixture
) -> None:
    live.held.error = ZeroDivisionError("division by zero")
    _, error = peer().open().ask(0).rest()
    code, told = refusal(error)
    assert (code, told.reason) == ("INTERNAL", "INTERNAL")
    assert told.message.startswith("the server failed (ZeroDivisionError); its log tells more")
    assert f"a call failed ({told.metadata['log']})" in caplog.text
    assert "division by zero" in caplog.text


def test_requests_beyond_the_limit(live: Any, peer: Any, refusal: Any, eventually: Any) -> None:
    live.held.held = True
    call = peer().open()
    for number in range(1024 + 2):
        call.ask(4 * number, request_id=number)
    # One is taken out to be answered, 1024 may wait behind it.
    eventually(lambda: live.gauge("queued_requests") >= 1024, "all but the last are taken in")
    live.held.release()
    live.held.held = False
    answers, error = call.rest()
    code, told = refusal(error)
    assert code == "INVALID_ARGUMENT"
    assert told.message == "more than 1024 requests wait for their answer"
    headers = [answer.header for answer in answers if answer.HasField("header")]
    assert [header.request_id for header in headers] == list(range(len(headers)))
    assert len(headers) in (1024, 1025)


def test_heartbeats_while_no_batch_is_ready(
    live: Any, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_stream, "_HEARTBEAT_SECONDS", 0.02)
    live.held.held = True
    call = peer().open()
    kinds = []
    for message in call.call:
        kinds.append(stream_pb2.StreamBatchesResponse.FromString(message).WhichOneof("event"))
        if len(kinds) == 3:
            call.ask(0)  # heartbeats before a request, and behind it
        if len(kinds) == 6:
            live.held.held = False
            live.held.release()
            call.half_close()
    assert kinds[:6] == ["opened"] + ["heartbeat"] * 5
    assert [kind for kind in kinds[6:] if kind != "heartbeat"] == ["header", "chunk"]


def test_a_cancelled_stream_leaves_nothing(live: Any, peer: Any, eventually: Any) -> None:
    live.held.held = True
    call = peer().open()
    for number in range(100):
        call.ask(4 * number)
    assert call.next().HasField("opened")
    eventually(lambda: live.gauge("queued_requests") == 100, "all are taken in")
    assert live.gauge("streams") == 1
    call.cancel()
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")
    eventually(lambda: live.gauge("queued_requests") == 0, "nothing waits")
    assert live.held.sessions[0].closed


def test_streams_that_are_dropped_at_once_leave_nothing(
    live: Any, peer: Any, eventually: Any
) -> None:
    def threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name == "infeed-intake"]

    for number in range(60):
        call = peer().open().ask(0)
        if number % 3:
            call.next()
        if number % 3 == 2:
            call.half_close()
        call.cancel()
    eventually(lambda: live.gauge("streams") == 0, "every stream is closed")
    eventually(lambda: not threads(), "no thread takes requests in")
    assert all(session.closed for session in live.held.sessions)
    # The pool's threads are used again: fewer than calls were made.
    pool = [each for each in threading.enumerate() if each.name.startswith("infeed-rpc")]
    assert len(pool) < 60
    answers, error = peer().open().ask(0).half_close().rest()
    assert (len(answers), error) == (3, None)


class Unencoded(Encoder):
    """Leaves answers as they are."""

    def __init__(self) -> None: ...

    def encode(self, stream: Any, request_id: int, answer: Future[Any]) -> Future[Any]:
        return answer


def test_behind_its_stop_an_intake_submits_nothing() -> None:
    submitted = []

    class Stream:
        def submit(self, request: stream_pb2.BatchRequest) -> Future[Any]:
            submitted.append(request.request_id)
            return Future()

    def requests() -> Iterator[stream_pb2.StreamBatchesRequest]:
        for number in range(3):
            if number == 2:
                intake.stop()
            batch = stream_pb2.BatchRequest(request_id=number, count=1)
            yield stream_pb2.StreamBatchesRequest(batch=batch)

    stream: Any = Stream()
    intake = rpc_stream.Intake(stream, Unencoded(), requests(), lambda: None)
    intake._run()
    assert submitted == [0, 1]
    assert intake.next(0) is None


def test_streams_do_not_wait_for_each_other(live: Any, peer: Any) -> None:
    live.held.held = True
    waiting = [peer().open().ask(0) for _ in range(20)]
    other = peer().open("other").ask(8).half_close()
    answers, error = other.rest()
    assert (len(answers), error) == (3, None)
    live.held.held = False
    live.held.release()
    for call in waiting:
        assert len(call.half_close().rest()[0]) == 3
