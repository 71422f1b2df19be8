"""Server reader: one connection's stream to a server, with reconnects."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from infeed.http2.target import is_unix, resolve
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.reporter import Reporter
from infeed.prefetch.server_pool import BLOCKS_DUE, REPORT_DUE, ServerPool
from infeed.prefetch.stream import Stream
from infeed.prefetch.threads import BackgroundThread
from infeed.shared.errors import ProtocolError, ServerUnavailableError
from infeed.shared.report import REPORT_INTERVAL_SECONDS, ServerReport
from infeed.transport import Call, Transport
from infeed.v1 import stream_pb2
from infeed.wire.assembler import BatchAssembler
from infeed.wire.buffer_pool import BufferPool
from infeed.wire.received import (
    Draining,
    EndOfData,
    PendingRequest,
    ReceivedBatch,
    StreamContract,
)
from infeed.wire.shared_memory import SOCKET_SUFFIX, receive_blocks

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchTracer


class Shared(NamedTuple):
    """What all readers of a feed share."""

    transport: Transport
    plan: FeedPlan
    pool: ServerPool
    buffers: BufferPool
    reporter: Reporter
    tracer: BatchTracer | None = None


class ServerReader(BackgroundThread):
    """Reads one connection's stream on a thread of its own, and reconnects when it is lost."""

    def __init__(self, server: str, shared: Shared, number: int = 0) -> None:
        """`number` counts the connections to the server."""
        super().__init__("infeed-reader", self._read_streams)
        self._server, self._number = server, number
        self._connections = shared.plan.connections_to(server)
        self._transport, self._plan, self._pool, self._buffers, self._reporter, _ = shared
        self._tracer = shared.tracer
        self._meter = shared.reporter.new_meter()
        self._call: Call | None = None
        self._stream: Stream | None = None
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Asks the thread to end. Callable from any thread."""
        self._stopping.set()
        if self._call is not None:
            self._call.cancel()

    def cancel_overdue(self) -> None:
        """Cancels the stream if its announced end does not come and nothing else does."""
        stream, call = self._stream, self._call
        if stream is None or call is None or not stream.draining:
            return
        with self._pool.locked() as coordinator:
            is_overdue = coordinator.is_overdue(stream)
        if is_overdue:
            call.cancel()

    def _read_streams(self) -> None:
        turn = partial(self._pool.wait_for_turn, self._server, self._number)
        while not self._stopping.is_set() and (stream := turn()):
            try:
                self._read_stream(stream)
            except BaseException as error:  # noqa: BLE001 - raised in the trainer's thread
                with self._pool.locked() as coordinator:
                    coordinator.on_stream_ended(stream, error)

    def _read_stream(self, stream: Stream) -> None:
        """Reads one stream to its end. Raises the error that ended it."""
        pending: deque[PendingRequest] = deque()
        contract = self._plan.contract_with(self._server)
        assembler = BatchAssembler(contract, pending, self._buffers)
        call = self._transport.open_stream(
            self._server, self._requests(stream, contract, pending), lambda: self._drain(stream)
        )
        self._call, self._stream = call, stream
        if self._stopping.is_set():
            call.cancel()  # stop() may have run before there was a call to cancel
        try:
            self._read_messages(call, stream, assembler)
        finally:
            with self._pool.locked():
                stream.ended = True  # ends the sending thread, for which `close` waits
                # An error keeps these alive until garbage collection, and blocks would stay mapped.
                stream.blocks = assembler.blocks = None
            call.close()
            if self._tracer is not None:
                self._tracer.on_stream_ended(stream.name)
        if not self._pool.ended:
            raise ServerUnavailableError(f"{call.server} ended the stream")

    def _read_messages(self, call: Call, stream: Stream, assembler: BatchAssembler) -> None:
        while (size := call.next()) is not None:
            try:
                result = assembler.read_message(size, call.read_into)
            except ProtocolError as error:
                message = f"protocol error from {call.server}: {error.message}"
                raise ProtocolError(message, server=call.server) from error
            if assembler.is_open and not stream.accepted:
                if interval := assembler.report_interval:
                    stream.report_interval = max(interval, REPORT_INTERVAL_SECONDS)
                    stream.report_at = time.monotonic() + stream.report_interval
                refusal = self._map_blocks(assembler, stream)
                with self._pool.locked() as coordinator:
                    coordinator.on_stream_accepted(stream)
                    if is_unix(self._server):
                        coordinator.shared_memory[self._server] = refusal
            if isinstance(result, Draining):
                self._drain(stream)
            elif isinstance(result, ServerReport):
                self._reporter.on_server_report(self._server, result)
            elif result is not None:
                self._on_answer(stream, result)
            del result  # do not hold the batch while waiting for the next one
            if self._pool.ended:
                return

    def _map_blocks(self, assembler: BatchAssembler, stream: Stream) -> str:
        """Maps the memory that the server offers; returns the reason if that fails."""
        offer = assembler.shared_memory
        if not offer.key:
            refusal = self._plan.shared_memory_refusal or offer.refusal
            return refusal or "the server is older than shared memory"
        path = str(resolve(self._server)[0][1]) + SOCKET_SUFFIX
        try:
            blocks = receive_blocks(path, offer.key, offer.blocks, offer.block_bytes)
        except OSError as error:
            return f"{path}: {error.strerror or error}"
        assembler.blocks = stream.blocks = blocks
        return ""

    def _on_answer(self, stream: Stream, answer: EndOfData | ReceivedBatch) -> None:
        self._check_end(answer)
        if isinstance(answer, ReceivedBatch):
            self._meter.bytes += answer.payload_bytes
            self._meter.receive_seconds += answer.receive_seconds / self._connections
            self._meter.update_cpu()
            if answer.span is not None:
                answer.span.on_received(answer.receive_seconds, answer.payload_bytes)
        with self._pool.locked() as coordinator:
            if isinstance(answer, ReceivedBatch):
                if stream.blocks is not None:
                    coordinator.shared_memory[self._server] = stream.blocks.shortage
                coordinator.on_batch(stream, answer)
            else:
                coordinator.on_end_of_data(answer)

    def _check_end(self, answer: EndOfData | ReceivedBatch) -> None:
        """Raises `ProtocolError` for an end of the data that does not fit the step."""
        plan, count = self._plan, answer.position_count
        required = plan.shard_plan.min_position_count(answer.step)
        if isinstance(answer, EndOfData):
            is_valid = plan.end_unknown and 0 <= answer.position_count < required
        else:
            end = plan.shard_plan.step_end(answer.step)
            is_valid = count is None or (plan.requests_step_end and required <= count < end)
        if not is_valid:
            raise ProtocolError(
                f"unexpected end of the data at position {count}, in answer to a request that "
                f"requires {required} positions"
            )

    def _drain(self, stream: Stream) -> None:
        """Requests nothing more from a closing server, which still sends what is in flight."""
        with self._pool.locked() as coordinator:
            coordinator.on_draining(stream)

    def _requests(
        self, stream: Stream, contract: StreamContract, pending: deque[PendingRequest]
    ) -> Iterator[stream_pb2.StreamBatchesRequest]:
        """Yields one stream's requests, on the transport's thread, and adds them to `pending`."""
        with self._pool.locked() as coordinator:
            coordinator.on_connected(stream)
        opening = stream_pb2.StreamOpen(feed_id=self._plan.feed_id)
        opening.MergeFrom(contract.opening)
        yield stream_pb2.StreamBatchesRequest(open=opening)
        while (step := self._pool.wait_for_step(stream)) is not None:
            if step == REPORT_DUE:
                stream.report_at = time.monotonic() + stream.report_interval
                yield stream_pb2.StreamBatchesRequest(report=self._reporter.report().to_proto())
                continue
            if step == BLOCKS_DUE:
                free = stream_pb2.FreeBlocks(blocks=stream.free_blocks())
                yield stream_pb2.StreamBatchesRequest(free=free)
                continue
            batch = self._plan.request(step)
            batch.free_blocks.extend(stream.free_blocks())
            span = None
            if self._tracer is not None:
                span = self._tracer.begin(self._server, stream.name, step, batch.start)
            if span is not None:
                batch.traceparent, batch.tracestate = span.headers()
            pending.append(PendingRequest(batch, span))
            yield stream_pb2.StreamBatchesRequest(batch=batch)
