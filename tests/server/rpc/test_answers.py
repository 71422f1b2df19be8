"""Encoding of answers: content, memory, errors and cancellation."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import ServerUnavailableError
from infeed.shared.spec import FieldSpec
from infeed.v1 import stream_pb2
from infeed.wire.batch import EncodedBatch, Payload, encode_batch, encode_end
from infeed_server.engines.base import EndOfData, HostBatch
from infeed_server.engines.monitor import Monitor
from infeed_server.rpc.answers import AnswerQueue, BatchEncoder

ROWS = np.arange(6, dtype=np.uint8).reshape(3, 2)
REQUEST = stream_pb2.BatchRequest(request_id=7)
IDS = np.array([4, 5, -1])
SPEC = (FieldSpec("x", "uint8", (2,)),)


class FakeStream:
    """Encodes batches of `SPEC`; waits for `may_encode` before each."""

    def __init__(self) -> None:
        self.pipeline = SimpleNamespace(name="p", parts={})
        self.may_encode = threading.Event()
        self.may_encode.set()

    def encode(self, request: stream_pb2.BatchRequest, answer: Any) -> Any:
        assert self.may_encode.wait(60)
        if isinstance(answer, EndOfData):
            return encode_end(request, answer.position_count)
        payload = Payload(SPEC, answer.arrays)
        return encode_batch(request, 0, 0, payload, answer.sample_ids, answer.mask)


@pytest.fixture
def encoder() -> Iterator[BatchEncoder]:
    encoder = BatchEncoder(Monitor())
    yield encoder
    encoder.close()


@pytest.fixture
def stream() -> Any:
    return FakeStream()


def batch() -> HostBatch:
    return HostBatch(0, 0, {"x": ROWS}, IDS, IDS >= 0)


def done_future(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def test_encoding_does_not_block_the_engine(encoder: BatchEncoder, stream: Any) -> None:
    stream.may_encode.clear()
    answer: Future[Any] = Future()
    encoded = encoder.encode(stream, REQUEST, answer)
    answer.set_result(batch())  # on the engine's thread
    assert not encoded.done()
    stream.may_encode.set()
    assert encoded.result(60).samples == 2


@pytest.mark.parametrize(
    ("parts", "counts"),
    [
        ({"web": 5, "none": 0, "books": 9}, {"web": 1, "books": 1}),
        ({"web": 4, "books": 9}, {"books": 2}),
        ({str(number): 1 for number in range(256)}, {"4": 1, "5": 1}),
        ({str(number): 1 for number in range(257)}, {}),
        ({}, {}),
    ],
)
def test_samples_are_counted_by_part(
    encoder: BatchEncoder, stream: Any, parts: dict[str, int], counts: dict[str, int]
) -> None:
    stream.pipeline.parts = parts
    encoded = encoder.encode(stream, REQUEST, done_future(batch())).result(60)
    assert encoded.parts == counts


def test_cancelled_answer_cancels_the_encoding(encoder: BatchEncoder, stream: Any) -> None:
    answer: Future[Any] = Future()
    encoded = encoder.encode(stream, REQUEST, answer)
    answer.cancel()
    with pytest.raises(CancelledError):
        encoded.result(60)


def test_answer_after_close_raises(stream: Any) -> None:
    encoder = BatchEncoder(Monitor())
    encoder.close()
    with pytest.raises(ServerUnavailableError, match="shutting down"):
        encoder.encode(stream, REQUEST, done_future(batch())).result(60)


def test_answers_of_a_queue_that_is_dropped_are_freed_at_once() -> None:
    gc.disable()  # it would collect reference cycles
    try:
        queue, answer = AnswerQueue(), Future[Any]()
        queue.add(answer)
        reference = weakref.ref(answer)
        del queue, answer
        assert reference() is None
    finally:
        gc.enable()


def test_queue_is_woken_by_an_answer_that_is_made() -> None:
    """Else it would be sent with the next heartbeat."""
    queue, answer = AnswerQueue(), Future[Any]()
    queue.add(answer)
    assert not queue.wait(0)
    answer.set_result(None)
    assert queue.wait(0)


def test_messages_are_made_when_they_are_taken(
    encoder: BatchEncoder, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(EncodedBatch, "messages", lambda _: ([made.append(1) or b""] for _ in "ab"))
    encoded = encoder.encode(stream, REQUEST, done_future(batch())).result(60)
    assert not made
    next(encoded.messages)
    assert len(made) == 1
