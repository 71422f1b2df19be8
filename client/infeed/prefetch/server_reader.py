"""Server reader: one stream to one server, with reconnects."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from infeed.errors import (
    AuthenticationError,
    FingerprintError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerUnavailableError,
)
from infeed.prefetch.closable_queue import QueueClosedError
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.server_pool import ServerPool
from infeed.transport import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS, Call, Transport
from infeed.v1 import stream_pb2
from infeed.wire.assembler import (
    BatchAssembler,
    Draining,
    EndOfData,
    PendingRequest,
    ReceivedBatch,
)
from infeed.wire.buffer_pool import BufferPool

_EXCLUDING_ERRORS = (
    AuthenticationError,
    FingerprintError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
)
"""Errors that concern one server: another one may be able to serve the feed."""

_EXCLUDED_RETRY_INTERVAL_SECONDS = 10.0
"""Period at which an excluded server is tried again: it may have been redeployed."""


class ServerReader:
    """Reads one server's stream on its own thread, and connects again when it is lost.

    ServerPool → requests → server → messages → BatchAssembler → ServerPool
    """

    def __init__(
        self,
        server: str,
        transport: Transport,
        plan: FeedPlan,
        pool: ServerPool,
        buffers: BufferPool,
    ) -> None:
        self._server = server
        self._transport = transport
        self._plan = plan
        self._pool = pool
        self._buffers = buffers
        self._call: Call | None = None
        self._stopping = threading.Event()
        self._stream_opened = False
        self._thread = threading.Thread(target=self._run, name="infeed-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end, without waiting for it. Callable from any thread."""
        self._stopping.set()
        if self._call is not None:
            self._call.cancel()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        backoff = MIN_BACKOFF_SECONDS
        while not self._stopping.is_set() and self._pool.wait_for_turn(self._server):
            delay = backoff
            try:
                self._read_stream()
            except QueueClosedError:
                return
            except ServerUnavailableError as error:
                self._pool.on_connection_lost(self._server, error)
            except _EXCLUDING_ERRORS as error:
                self._pool.exclude(self._server, error)
                delay = _EXCLUDED_RETRY_INTERVAL_SECONDS
            except BaseException as error:  # noqa: BLE001 - raised in the trainer's thread
                self._pool.on_batch_failed(self._server, error)
                return
            self._pool.backoff(delay)
            opened = self._stream_opened
            backoff = MIN_BACKOFF_SECONDS if opened else min(2 * backoff, MAX_BACKOFF_SECONDS)

    def _read_stream(self) -> None:
        """Reads one stream to its end. Raises the error that ended it."""
        ended = threading.Event()
        pending: deque[PendingRequest] = deque()
        self._stream_opened = False
        requests = self._requests(pending, ended)
        call = self._transport.open_stream(self._server, requests, self._on_draining)
        self._call = call
        if self._stopping.is_set():
            call.cancel()  # stop() may have run before there was a call to cancel
        try:
            self._read_messages(call, pending)
        finally:
            self._pool.end_stream(ended)
            call.close()
        if not self._pool.ended:
            raise ServerUnavailableError(f"{call.server} ended the stream")

    def _read_messages(self, call: Call, pending: deque[PendingRequest]) -> None:
        assembler = BatchAssembler(self._plan.contract, _pop_all(pending), self._buffers)
        while (size := call.next()) is not None:
            try:
                result = assembler.read_message(size, call.read_into)
            except ProtocolError as error:
                message = f"protocol error from {call.server}: {error.message}"
                raise ProtocolError(message, server=call.server) from error
            if assembler.is_open and not self._stream_opened:
                self._stream_opened = True
                self._pool.on_stream_opened(self._server)
            if isinstance(result, Draining):
                self._on_draining()
            elif isinstance(result, EndOfData):
                self._on_end_of_data(result)
            elif result is not None:
                self._check_position_count(result)
                self._pool.on_batch(self._server, result.step, result)
            del result  # do not hold the batch while waiting for the next one
            if self._pool.ended:
                return

    def _on_end_of_data(self, end: EndOfData) -> None:
        required = self._plan.shard_plan.min_position_count(end.step)
        if not self._plan.end_unknown or not 0 <= end.position_count < required:
            raise ProtocolError(
                f"unexpected end of the data at position {end.position_count}, in answer to a "
                f"request that requires {required} positions"
            )
        self._pool.on_end_of_data(end.step, end.position_count)

    def _check_position_count(self, received: ReceivedBatch) -> None:
        count, shard_plan = received.position_count, self._plan.shard_plan
        if count is None:
            return
        required = shard_plan.min_position_count(received.step)
        end = shard_plan.step_end(received.step)
        if not self._plan.requests_step_end or not required <= count < end:
            raise ProtocolError(
                f"unexpected end of the data at position {count}, with a batch of the step from "
                f"{required} to {end}"
            )

    def _on_draining(self) -> None:
        self._pool.on_draining(self._server)

    def _requests(
        self, pending: deque[PendingRequest], ended: threading.Event
    ) -> Iterator[stream_pb2.StreamBatchesRequest]:
        """Yields the requests of one stream, on the transport's thread; adds them to `pending`."""
        self._pool.on_connected(self._server, ended)
        yield stream_pb2.StreamBatchesRequest(open=self._plan.open_message)
        shard_plan = self._plan.shard_plan
        while (step := self._pool.wait_for_step(self._server, ended)) is not None:
            start, count = shard_plan.batch_range(step)
            pending.append(PendingRequest(step, start))
            batch = stream_pb2.BatchRequest(request_id=step, start=start, count=count)
            if self._plan.end_unknown:
                batch.min_position_count = shard_plan.min_position_count(step)
            if self._plan.requests_step_end:
                batch.step_end = shard_plan.step_end(step)
            yield stream_pb2.StreamBatchesRequest(batch=batch)


def _pop_all(pending: deque[PendingRequest]) -> Iterator[PendingRequest]:
    """Yields the requests in order; ends at an answer to a request that was not made."""
    while pending:
        yield pending.popleft()
