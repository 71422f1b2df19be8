"""Answers become messages while others are sent; what becomes of an answer, its stream is told."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed.errors import SampleError, ServerUnavailableError
from infeed.spec import FieldSpec
from infeed.v1 import stream_pb2
from infeed.wire import encode_batch
from infeed_server.engines.base import End, HostBatch
from infeed_server.engines.monitor import Silent
from infeed_server.rpc.encoder import Encoder

ROWS = np.arange(6, dtype=np.uint8).reshape(3, 2)
IDS = np.array([4, 5, -1])
SPEC = (FieldSpec("x", "uint8", (2,)),)


class FakeStream:
    """Encodes batches of `SPEC`; waits for `open` before each."""

    pipeline = SimpleNamespace(name="p")

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()

    def encode(self, request_id: int, answer: Any) -> Any:
        assert self.open.wait(60)
        if isinstance(answer, End):
            return stream_pb2.EndOfData(request_id=request_id, position_count=answer.position_count)
        return encode_batch(request_id, 0, 0, SPEC, answer.arrays, answer.sample_ids, answer.mask)


@pytest.fixture
def encoder() -> Iterator[Encoder]:
    encoder = Encoder(Silent())
    yield encoder
    encoder.close()


@pytest.fixture
def stream() -> Any:
    return FakeStream()


def batch() -> HostBatch:
    return HostBatch(0, 0, {"x": ROWS}, IDS, IDS >= 0)


def done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def messages(framed: list[Any]) -> list[stream_pb2.StreamBatchesResponse]:
    """What a peer reads out of the bytes."""
    data, found = b"".join(framed), []
    while data:
        end = 5 + int.from_bytes(data[1:5], "big")
        assert data[0] == 0
        found.append(stream_pb2.StreamBatchesResponse.FromString(data[5:end]))
        data = data[end:]
    return found


def test_a_batch(encoder: Encoder, stream: Any) -> None:
    encoded = encoder.encode(stream, 7, done(batch())).result(60)
    header, chunk = messages(encoded.messages)
    assert (header.header.request_id, list(header.header.sample_ids)) == (7, IDS.tolist())
    assert chunk.chunk.data == ROWS.tobytes()
    assert (encoded.samples, encoded.payload_bytes) == (2, 6)


def test_its_bytes_lie_where_the_engine_put_them(encoder: Encoder, stream: Any) -> None:
    encoded = encoder.encode(stream, 7, done(batch())).result(60)
    last = np.frombuffer(encoded.messages[-1], np.uint8)
    assert np.shares_memory(last, ROWS)


def test_nothing_keeps_an_answer_that_was_encoded(encoder: Encoder, stream: Any) -> None:
    gc.disable()  # which finds circles some day: until then, each would hold a batch
    try:
        answers: list[Future[Any]] = [Future() for _ in range(8)]
        encoded = [encoder.encode(stream, 7, answer) for answer in answers]
        for answer in answers:
            answer.set_result(batch())
        left = [weakref.ref(answer.result()) for answer in answers]
        assert [each.result(60).samples for each in encoded] == [2] * 8
        del answers, answer
        deadline = time.monotonic() + 60
        while any(ref() for ref in left) and time.monotonic() < deadline:
            time.sleep(0.01)  # the pool's thread lets go of the last
        assert [ref() for ref in left] == [None] * 8
    finally:
        gc.enable()


def test_the_end(encoder: Encoder, stream: Any) -> None:
    encoded = encoder.encode(stream, 7, done(End(11))).result(60)
    (end,) = messages(encoded.messages)
    assert (end.end.request_id, end.end.position_count) == (7, 11)
    assert encoded.samples is None


def test_nothing_is_encoded_before_there_is_an_answer(encoder: Encoder, stream: Any) -> None:
    answer: Future[Any] = Future()
    encoded = encoder.encode(stream, 7, answer)
    assert not encoded.done()
    answer.set_result(batch())
    assert encoded.result(60).samples == 2


def test_who_answers_does_not_wait(encoder: Encoder, stream: Any) -> None:
    stream.open.clear()
    answer: Future[Any] = Future()
    encoded = encoder.encode(stream, 7, answer)
    answer.set_result(batch())  # by the engine's thread, which has more to do
    assert not encoded.done()
    stream.open.set()
    assert encoded.result(60).samples == 2


def test_an_error(encoder: Encoder, stream: Any) -> None:
    answer: Future[Any] = Future()
    answer.set_exception(SampleError("a bad sample"))
    with pytest.raises(SampleError, match="a bad sample"):
        encoder.encode(stream, 7, answer).result(60)


def test_a_batch_that_cannot_be_encoded(encoder: Encoder, stream: Any) -> None:
    with pytest.raises(KeyError):
        encoder.encode(stream, 7, done(HostBatch(0, 0, {}, IDS, IDS >= 0))).result(60)


def test_a_cancelled_answer(encoder: Encoder, stream: Any) -> None:
    answer: Future[Any] = Future()
    encoded = encoder.encode(stream, 7, answer)
    answer.cancel()
    with pytest.raises(CancelledError):
        encoded.result(60)


def test_an_answer_behind_the_close(stream: Any) -> None:
    encoder = Encoder(Silent())
    encoder.close()
    with pytest.raises(ServerUnavailableError, match="shutting down"):
        encoder.encode(stream, 7, done(batch())).result(60)
