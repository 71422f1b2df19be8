"""StreamBatches calls with valid and invalid messages."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from infeed.shared.errors import InvalidRequestError, UserCodeError
from infeed.v1 import stream_pb2
from infeed_server.rpc import batch_stream


def test_responses_are_in_order_and_end_with_the_requests(live: Any, new_call: Any) -> None:
    call = new_call().open()
    for number in range(20):
        call.request(4 * number, request_id=100 + number)
    answers, rpc_error = call.half_close().rest()
    assert rpc_error is None
    opened, *rest = answers
    assert opened.opened.fingerprint == "f" * 32
    assert (opened.opened.batch_size, opened.opened.batch_stride, opened.opened.seed) == (4, 4, 7)
    headers, chunks = rest[::2], rest[1::2]
    assert [answer.header.request_id for answer in headers] == list(range(100, 120))
    assert [answer.header.start for answer in headers] == list(range(0, 80, 4))
    assert all(answer.chunk.data for answer in chunks)
    assert live.held.sent == 20
    assert live.gauge("batches") == 20


def test_sent_batches_are_freed(live: Any, new_call: Any, eventually: Any) -> None:
    gc.disable()  # which would free reference cycles too
    try:
        call = new_call().open()
        for number in range(5):
            call.request(4 * number)
        kinds = [call.next().WhichOneof("event") for _ in range(11)]
        assert kinds[-2:] == ["header", "chunk"]
        # The stream is open and waits for requests.
        eventually(
            lambda: not any(ref() is not None for ref in live.held.batches), "all five are freed"
        )
        assert len(live.held.batches) == 5
    finally:
        gc.enable()


GARBAGE = b"\xff\xfe no message"


@pytest.mark.parametrize(
    ("break_stream", "message"),
    [
        (lambda call: call.half_close(), "the first message of a stream must be StreamOpen"),
        (lambda call: call.request(0), "the first message of a stream must be StreamOpen"),
        (lambda call: call.send(b""), "the first message of a stream must be StreamOpen"),
        (
            lambda call: call.send(GARBAGE),
            "a message of 13 bytes is not a valid StreamBatchesRequest",
        ),
        (lambda call: call.open(batch_size=-1), "batch size -1 is out of range"),
        (lambda call: call.open(batch_size=1 << 40), "batch size 1099511627776 is out of range"),
        (lambda call: call.open(seed=-1), "seed -1 is out of range"),
        (lambda call: call.open(epochs=-1), "epochs -1 is out of range"),
    ],
)
def test_invalid_first_message_is_refused(
    live: Any, new_call: Any, error_of: Any, break_stream: Callable[[Any], Any], message: str
) -> None:
    answers, rpc_error = break_stream(new_call()).rest()
    code, error = error_of(rpc_error)
    assert answers == []
    assert code == "INVALID_ARGUMENT"
    assert isinstance(error, InvalidRequestError)
    assert error.message.startswith(message)
    assert live.gauge("streams") == 0


@pytest.mark.parametrize(
    ("options", "code", "reason", "message"),
    [
        ({"pipeline": "x"}, "NOT_FOUND", "PIPELINE_NOT_FOUND", "no pipeline 'x'.*: held, other"),
        ({"pipeline": ""}, "NOT_FOUND", "PIPELINE_NOT_FOUND", "no pipeline ''"),
        (
            {"fingerprint": "abc"},
            "FAILED_PRECONDITION",
            "FINGERPRINT_MISMATCH",
            "'held' has the fingerprint f+ here, not abc: .*; infeed list A,B shows what differs",
        ),
    ],
)
def test_unknown_pipeline_or_fingerprint_is_refused(
    new_call: Any, error_of: Any, options: dict[str, Any], code: str, reason: str, message: str
) -> None:
    _, rpc_error = new_call().open(**options).rest()
    status, error = error_of(rpc_error)
    assert (status, error.reason) == (code, reason)
    with pytest.raises(type(error), match=message):
        raise error


@pytest.mark.parametrize(
    ("break_stream", "message"),
    [
        (lambda call: call.open(), "after StreamOpen, a stream accepts only BatchRequ"),
        (lambda call: call.send(b""), "after StreamOpen, a stream accepts only BatchRequ"),
        (
            lambda call: call.send(GARBAGE),
            "a message of 13 bytes is not a valid StreamBatchesRequest",
        ),
        (lambda call: call.request(0, 5), "count 5 is out of range; it must be 0 to 4"),
        (lambda call: call.request(8, min_position_count=13), "min_position_count 13 .* 0 to 12"),
        (lambda call: call.request(8, step_end=13), "step_end 13 .* it must be 0 to 12"),
        (lambda call: call.request(-1), "start -1 is out of range"),
        (lambda call: call.request((1 << 62) + 1), "start 4611686018427387905 is out of range"),
    ],
)
def test_invalid_message_ends_the_stream_after_earlier_requests(
    live: Any,
    new_call: Any,
    error_of: Any,
    eventually: Any,
    break_stream: Callable[[Any], Any],
    message: str,
) -> None:
    call = new_call().open().request(0, request_id=1).request(4, 0, request_id=2)
    answers, rpc_error = break_stream(call).request(8).rest()
    code, error = error_of(rpc_error)
    assert code == "INVALID_ARGUMENT"
    with pytest.raises(InvalidRequestError, match=message):
        raise error
    headers = [answer.header for answer in answers if answer.HasField("header")]
    assert [header.request_id for header in headers] == [1, 2]
    assert not any(headers[1].mask)
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")
    assert live.held.sessions[0].closed


def test_engine_error_ends_the_stream_after_earlier_batches(
    live: Any, new_call: Any, error_of: Any, eventually: Any
) -> None:
    call = new_call().open().request(0)
    assert [call.next().WhichOneof("event") for _ in range(3)] == ["opened", "header", "chunk"]
    live.held.error = UserCodeError("it raised", sample_id=3)
    answers, rpc_error = call.request(4).request(8).rest()
    code, error = error_of(rpc_error)
    assert answers == []
    assert (code, error.message) == ("FAILED_PRECONDITION", "it raised")
    assert error.metadata == {"sample_id": "3"}
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")


def test_unexpected_error_is_internal(
    live: Any, new_call: Any, error_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    live.held.error = ZeroDivisionError("division by zero")
    _, rpc_error = new_call().open().request(0).rest()
    code, error = error_of(rpc_error)
    assert (code, error.reason) == ("INTERNAL", "INTERNAL")
    assert error.message.startswith(
        "the server failed (ZeroDivisionError); its log has the details"
    )
    assert f"a call failed ({error.metadata['log']})" in caplog.text
    assert "division by zero" in caplog.text


def test_heartbeats_are_sent_while_no_batch_is_ready(
    live: Any, new_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_stream, "_HEARTBEAT_INTERVAL_SECONDS", 0.02)
    live.held.held = True
    call = new_call().open()
    kinds = []
    for message in call.call:
        kinds.append(stream_pb2.StreamBatchesResponse.FromString(message).WhichOneof("event"))
        if len(kinds) == 3:
            call.request(0)  # heartbeats before and after a request
        if len(kinds) == 6:
            live.held.held = False
            live.held.release()
            call.half_close()
    assert kinds[:6] == ["opened"] + ["heartbeat"] * 5
    assert [kind for kind in kinds[6:] if kind != "heartbeat"] == ["header", "chunk"]


def report_message(steps: int = 5, **figures: float) -> stream_pb2.StreamBatchesRequest:
    report = stream_pb2.TrainerReport(seconds=10.0, steps=steps, wait_seconds=1.0, **figures)
    return stream_pb2.StreamBatchesRequest(report=report)


def test_report_is_answered_between_batches(live: Any, new_call: Any) -> None:
    call = new_call().open().send(report_message())
    opened = call.next().opened
    assert opened.report_interval_seconds == 1
    assert call.next().WhichOneof("event") == "report"
    answers, rpc_error = call.request(0).half_close().rest()
    assert [answer.WhichOneof("event") for answer in answers] == ["header", "chunk"]
    assert rpc_error is None
    assert len(live.held.sessions[0].requests) == 1


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_impossible_report_ends_the_stream(new_call: Any, error_of: Any, seconds: float) -> None:
    message = report_message()
    message.report.cpu_seconds = seconds
    _, rpc_error = new_call().open().send(message).rest()
    code, error = error_of(rpc_error)
    assert code == "INVALID_ARGUMENT"
    assert error.message.startswith(f"TrainerReport.cpu_seconds is {seconds}; it must be from 0")
