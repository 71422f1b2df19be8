"""Answers of a stream: encoded on a thread pool, and taken in the order of their requests."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import part_numbers
from infeed.v1 import stream_pb2
from infeed.wire.batch import EncodedBatch
from infeed_server.engines.base import Answer, shutting_down
from infeed_server.engines.monitor import Monitor, record_stage
from infeed_server.processes import cgroup
from infeed_server.rpc.shared_memory import BlockPool
from infeed_server.serving.catalog import BatchStream

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan

MAX_PENDING_REQUESTS = 1024
"""Maximum unanswered requests of one stream; more is an error. With a smaller limit, trainers
request fewer batches ahead."""

MAX_COUNTED_PARTS = 256
"""Maximum parts of a source whose samples are counted: each adds a time series to the metrics."""


@dataclass(frozen=True)
class EncodedAnswer:
    """An engine's answer as gRPC messages, with its sizes for the metrics."""

    messages: Iterator[bytes]
    """Made when gRPC takes them, so that each message is in the processor's cache when gRPC copies
    it."""
    count: int
    """The number of messages."""
    samples: int | None
    """Filled slots; None when the answer is not a batch."""
    payload_bytes: int
    position: int
    """The position at which its request ends."""
    span: BatchSpan | None = None
    """The span of the batch, if it is traced."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """The samples of each part with any; empty if the source has no parts or too many."""


class BatchEncoder:
    """Encodes the answers of all streams, with one thread for each processor."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._pool = ThreadPoolExecutor(cgroup.cpu_count(), "infeed-encode")

    def close(self) -> None:
        self._pool.shutdown()

    def encode(
        self,
        stream: BatchStream,
        request: stream_pb2.BatchRequest,
        answer: Future[Answer],
        span: BatchSpan | None = None,
        blocks: BlockPool | None = None,
    ) -> Future[EncodedAnswer]:
        """Returns a future of the encoded answer, which is cancelled when the answer is."""
        encoded: Future[EncodedAnswer] = Future()

        # Neither may refer to `answer`, which refers to them: such a cycle would keep a batch in
        # memory until the next garbage collection.
        def settle(answered: Future[Answer]) -> None:
            try:
                encoded.set_result(self._encode(stream, request, answered.result(), span, blocks))
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

    def _encode(
        self,
        stream: BatchStream,
        request: stream_pb2.BatchRequest,
        answer: Answer,
        span: BatchSpan | None,
        blocks: BlockPool | None,
    ) -> EncodedAnswer:
        begin, position = time.perf_counter(), request.start + request.count
        batch = stream.encode(request, answer)
        if not isinstance(batch, EncodedBatch):
            end = stream_pb2.StreamBatchesResponse(end=batch)
            return EncodedAnswer(iter((end.SerializeToString(),)), 1, None, 0, position, span)
        if blocks is not None:
            batch = blocks.place(request, batch)
        messages = map(b"".join, batch.messages())
        record_stage(self._monitor, stream.pipeline.name, "encode", begin, span)
        samples = sum(sample >= 0 for sample in batch.header.sample_ids)
        size = batch.header.payload_size
        parts = _count_parts(stream.pipeline.parts, batch.header.sample_ids)
        return EncodedAnswer(messages, batch.message_count(), samples, size, position, span, parts)


def _count_parts(parts: Mapping[str, int], sample_ids: Sequence[int]) -> dict[str, int]:
    if not 0 < len(parts) <= MAX_COUNTED_PARTS:
        return {}
    numbers = part_numbers(parts, np.array(sample_ids, np.int64))
    counts = np.bincount(numbers[numbers >= 0]).tolist()
    return {part: count for part, count in zip(parts, counts, strict=False) if count}


_Item: TypeAlias = "Future[EncodedAnswer] | Exception | None"
"""The answer to a request, or the error in it; None at the end of the stream."""


class AnswerQueue:
    """Answers that are ready or in progress. One thread adds, another takes, and any thread may
    wake the latter."""

    def __init__(self) -> None:
        self.ended = False
        """Whether `take` returns nothing more."""
        self._answers: deque[_Item] = deque()
        self._changed = threading.Event()

    def wake(self) -> None:
        """Ends the current or next `wait`."""
        self._changed.set()

    def require_room(self) -> None:
        """Raises `InvalidRequestError` if too many requests are unanswered."""
        if len(self._answers) >= MAX_PENDING_REQUESTS:
            raise InvalidRequestError(f"the stream has {MAX_PENDING_REQUESTS} unanswered requests")

    def add(self, answer: _Item) -> None:
        self._answers.append(answer)
        if isinstance(answer, Future):
            wake = self._changed.set  # the queue refers to the future: a cycle would keep its batch
            answer.add_done_callback(lambda _: wake())
        else:
            self.wake()

    def take(self) -> EncodedAnswer | None:
        """Returns the answer to the oldest request if it is ready, or raises its error. A cancelled
        answer is the end: the client or the ending server has closed the session."""
        if not self._answers:
            return None
        oldest = self._answers[0]
        if isinstance(oldest, Future) and not oldest.done():
            return None
        self._answers.popleft()
        if isinstance(oldest, Exception):
            raise oldest
        try:
            answer = None if oldest is None else oldest.result()
        except CancelledError:
            answer = None
        self.ended = self.ended or answer is None
        return answer

    def wait(self, timeout: float) -> bool:
        """Waits until `take` may return something, or `wake`; returns False if it times out."""
        is_woken = self._changed.wait(timeout)
        self._changed.clear()
        return is_woken

    def end(self) -> None:
        """Ends the answers, and wakes a thread in `wait`."""
        self.ended = True
        self.wake()
