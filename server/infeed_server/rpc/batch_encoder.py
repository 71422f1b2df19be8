"""Encoding of batches into gRPC messages on a thread pool, while others are sent."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infeed.v1 import stream_pb2
from infeed.wire.batch import EncodedBatch
from infeed_server.engines import cgroup
from infeed_server.engines.base import Answer, shutting_down
from infeed_server.engines.monitor import Monitor, record_stage
from infeed_server.serving.catalog import BatchStream

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan


@dataclass(frozen=True)
class EncodedAnswer:
    """An engine's answer as gRPC messages, with its sizes for the metrics."""

    messages: deque[bytes]
    """In one piece each, as gRPC takes them."""
    samples: int | None
    """Filled slots; None when the answer is not a batch."""
    payload_bytes: int
    position: int
    """The end of its request in the stream of samples."""
    span: BatchSpan | None = None
    """The span of the batch, if it is traced."""


class BatchEncoder:
    """Encodes the answers of all streams, with one thread for each processor."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._pool = ThreadPoolExecutor(cgroup.cpu_count(), "infeed-encode")

    def encode(
        self,
        stream: BatchStream,
        request: stream_pb2.BatchRequest,
        answer: Future[Answer],
        span: BatchSpan | None = None,
    ) -> Future[EncodedAnswer]:
        """Returns a future of the encoded answer, which is cancelled when the answer is."""
        encoded: Future[EncodedAnswer] = Future()

        # Neither may refer to `answer`, which refers to them: such a cycle would keep a batch in
        # memory until the next garbage collection.
        def settle(answered: Future[Answer]) -> None:
            try:
                encoded.set_result(self._encode(stream, request, answered.result(), span))
            except CancelledError:
                encoded.cancel()
            except Exception as error:  # noqa: BLE001 - raised by `encoded.result()`
                encoded.set_exception(error)

        def on_answer(answered: Future[Answer]) -> None:
            try:
                self._pool.submit(settle, answered)
            except RuntimeError:  # the pool is shut down
                encoded.set_exception(shutting_down())

        answer.add_done_callback(on_answer)
        return encoded

    def close(self) -> None:
        self._pool.shutdown()

    def _encode(
        self,
        stream: BatchStream,
        request: stream_pb2.BatchRequest,
        answer: Answer,
        span: BatchSpan | None,
    ) -> EncodedAnswer:
        begin, position = time.perf_counter(), request.start + request.count
        batch = stream.encode(request, answer)
        if not isinstance(batch, EncodedBatch):
            end = stream_pb2.StreamBatchesResponse(end=batch)
            return EncodedAnswer(deque([end.SerializeToString()]), None, 0, position, span)
        messages = deque(map(b"".join, batch.messages()))
        record_stage(self._monitor, stream.pipeline.name, "encode", begin, span)
        samples = sum(sample >= 0 for sample in batch.header.sample_ids)
        return EncodedAnswer(messages, samples, batch.header.payload_size, position, span)
