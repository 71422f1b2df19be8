"""Encoding of answers: content, memory, errors and cancellation."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import SampleError, ServerUnavailableError
from infeed.shared.spec import FieldSpec
from infeed.v1 import stream_pb2
from infeed.wire.batch import encode_batch, encode_end
from infeed_server.engines.base import EndOfData, HostBatch
from infeed_server.engines.monitor import Monitor
from infeed_server.rpc.batch_encoder import BatchEncoder

ROWS = np.arange(6, dtype=np.uint8).reshape(3, 2)
REQUEST = stream_pb2.BatchRequest(request_id=7)
IDS = np.array([4, 5, -1])
SPEC = (FieldSpec("x", "uint8", (2,)),)


class FakeStream:
    """Encodes batches of `SPEC`; waits for `may_encode` before each."""

    pipeline = SimpleNamespace(name="p")

    def __init__(self) -> None:
        self.may_encode = threading.Event()
        self.may_encode.set()

    def encode(self, request: stream_pb2.BatchRequest, answer: Any) -> Any:
        assert self.may_encode.wait(60)
        if isinstance(answer, EndOfData):
            return encode_end(request, answer.position_count)
        return encode_batch(request, 0, 0, SPEC, answer.arrays, answer.sample_ids, answer.mask)


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


def parse_messages(messages: Iterable[bytes]) -> list[stream_pb2.StreamBatchesResponse]:
    """Parses the bytes as a client does."""
    return [stream_pb2.StreamBatchesResponse.FromString(message) for message in messages]


def test_batch_is_encoded(encoder: BatchEncoder, stream: Any) -> None:
    encoded = encoder.encode(stream, REQUEST, done_future(batch())).result(60)
    header, chunk = parse_messages(encoded.messages)
    assert (header.header.request_id, list(header.header.sample_ids)) == (7, IDS.tolist())
    assert chunk.chunk.data == ROWS.tobytes()
    assert (encoded.samples, encoded.payload_bytes) == (2, 6)


def test_encoded_answers_are_freed_without_the_collector(
    encoder: BatchEncoder, stream: Any
) -> None:
    gc.disable()  # which would free reference cycles too
    try:
        answers: list[Future[Any]] = [Future() for _ in range(8)]
        encoded = [encoder.encode(stream, REQUEST, answer) for answer in answers]
        for answer in answers:
            answer.set_result(batch())
        references = [weakref.ref(answer.result()) for answer in answers]
        assert [future.result(60).samples for future in encoded] == [2] * 8
        del answers, answer
        deadline = time.monotonic() + 60
        while any(ref() for ref in references) and time.monotonic() < deadline:
            time.sleep(0.01)  # the pool's thread holds the last one for a moment
        assert [ref() for ref in references] == [None] * 8
    finally:
        gc.enable()


def test_end_of_data_is_encoded(encoder: BatchEncoder, stream: Any) -> None:
    encoded = encoder.encode(stream, REQUEST, done_future(EndOfData(11))).result(60)
    (end,) = parse_messages(encoded.messages)
    assert (end.end.request_id, end.end.position_count) == (7, 11)
    assert encoded.samples is None


def test_encoding_does_not_block_the_engine(encoder: BatchEncoder, stream: Any) -> None:
    stream.may_encode.clear()
    answer: Future[Any] = Future()
    encoded = encoder.encode(stream, REQUEST, answer)
    answer.set_result(batch())  # on the engine's thread
    assert not encoded.done()
    stream.may_encode.set()
    assert encoded.result(60).samples == 2


def test_error_of_the_answer_is_passed_on(encoder: BatchEncoder, stream: Any) -> None:
    answer: Future[Any] = Future()
    answer.set_exception(SampleError("a bad sample"))
    with pytest.raises(SampleError, match="a bad sample"):
        encoder.encode(stream, REQUEST, answer).result(60)


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
