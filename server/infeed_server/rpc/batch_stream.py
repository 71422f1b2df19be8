"""Streams of batches: a call's thread sends responses, another thread reads its requests."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from infeed.shared.errors import InvalidRequestError, ServerUnavailableError, SourceError
from infeed.shared.report import REPORT_INTERVAL_SECONDS, ServerReport, TrainerReport
from infeed.v1 import stream_pb2
from infeed_server.engines.monitor import fault_of, record_stage
from infeed_server.rpc.answers import AnswerQueue, BatchEncoder, EncodedAnswer
from infeed_server.rpc.call import ServerCall, log_trainer
from infeed_server.rpc.shared_memory import BlockPool, SharedMemory
from infeed_server.serving.catalog import Catalog
from infeed_server.serving.instrument import ConnectedTrainer, Instrument
from infeed_server.serving.refused import RefusedBatches

_HEARTBEAT_INTERVAL_SECONDS = 5.0
"""Time between messages while no batch is ready: with more, clients consider the server lost."""

Requests = Iterator[stream_pb2.StreamBatchesRequest]


@dataclass(eq=False)
class BatchStreams:
    """All batch streams of a server, which end with it."""

    catalog: Catalog
    encoder: BatchEncoder
    instrument: Instrument
    refused: RefusedBatches
    shared_memory: SharedMemory | None = None
    """None: the server does not listen on a Unix socket."""
    is_protected: bool = False
    """Whether the server listens on a Unix socket or uses TLS."""
    draining: bool = False
    ended: bool = False
    open: set[_Stream] = field(default_factory=set)

    def drain(self) -> None:
        """Makes open streams announce the shutdown. They continue until `end`."""
        self.draining = True
        self._wake()

    def end(self) -> None:
        """Ends the remaining streams with a status."""
        self.draining = self.ended = True
        self._wake()

    def serve(self, requests: Requests, call: ServerCall) -> Iterator[bytes]:
        """Yields the responses of one call."""
        first = next(requests, None)
        if first is None or first.WhichOneof("event") != "open":
            raise InvalidRequestError("the first message of a stream must be StreamOpen")
        call.caller.require_access(first.open.pipeline)
        stream = _Stream(self, first.open, call)
        # The call may end while gRPC still holds this generator, so the end of either cleans up.
        if not call.context.add_callback(stream.close):
            stream.close()
            return
        self.open.add(stream)
        try:
            yield from stream.responses(requests)
        except SourceError as error:
            self.instrument.monitor.count("infeed_source_errors", stream.name, fault_of(error))
            self.refused.add(stream.name, error)
            raise
        finally:
            self.open.discard(stream)
            stream.close()
            # Not in `close`: a peer leaves when it has its last batch, before that batch counts as
            # sent.
            stream.traces.close()

    def _wake(self) -> None:
        for stream in tuple(self.open):
            stream.answers.wake()


class _Stream:
    """One stream that is open."""

    def __init__(
        self, streams: BatchStreams, opening: stream_pb2.StreamOpen, call: ServerCall
    ) -> None:
        self._streams = streams
        self._opening = opening
        self._caller = call.caller
        catalog = streams.catalog.visible_to(call.caller)
        self._stream = stream = catalog.open(opening, is_protected=streams.is_protected)
        self.name = stream.pipeline.name
        self.answers = AnswerQueue()
        self._blocks = self._open_blocks()
        peer = call.peer()
        self.traces = streams.instrument.trace(opening, peer)
        call.trainer = self._trainer = ConnectedTrainer(
            self.name,
            opening.rank,
            opening.feed_id,
            peer,
            stream.seed,
            stream.batch_size,
            stream.world_size,
            opening.job_name,
            stream.session.held_seconds,
        )
        streams.instrument.monitor.count("infeed_streams", self.name)
        streams.instrument.connect(self._trainer)
        self._report: ServerReport | None = None
        """The answer to the last report, until it is sent."""
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Frees the stream's resources. Idempotent; called on any thread, and must not block."""
        with self._lock:  # a request that was submitted to a closed session would never be freed
            was_closed, self._closed = self._closed, True
        if was_closed:
            return
        self._streams.instrument.disconnect(self._trainer)
        self.answers.end()
        self._stream.session.close()
        if self._blocks is not None and self._streams.shared_memory is not None:
            self._streams.shared_memory.close_pool(self._blocks)
        self._streams.instrument.monitor.count("infeed_streams", self.name, amount=-1)

    def responses(self, requests: Requests) -> Iterator[bytes]:
        """Yields the responses; another thread reads the requests, so that the engine can work
        ahead."""
        read = partial(contextvars.copy_context().run, self._read, requests)  # for the log
        threading.Thread(target=read, name="infeed-requests", daemon=True).start()
        opened = self._stream.opened_message()
        opened.request.CopyFrom(self._opening)
        opened.request.ClearField("feed_id")
        opened.report_interval_seconds = REPORT_INTERVAL_SECONDS
        if self._opening.blocks:
            opened.shared_memory.CopyFrom(self._offer())
        yield _message(opened=opened)
        is_announced = False
        heartbeat_at = time.monotonic() + _HEARTBEAT_INTERVAL_SECONDS
        while True:
            if self._streams.ended:
                raise ServerUnavailableError("the server is shutting down; connect to another one")
            if self._streams.draining and not is_announced:
                is_announced = True
                yield _message(draining=stream_pb2.Draining())
            report, self._report = self._report, None
            if report is not None:
                yield _message(report=report.to_proto())
            if (answer := self.answers.take()) is not None:
                yield from self._send(answer)
            elif self.answers.ended:
                return
            elif self.answers.wait(heartbeat_at - time.monotonic()):
                continue
            else:
                yield _HEARTBEAT
            heartbeat_at = time.monotonic() + _HEARTBEAT_INTERVAL_SECONDS

    def _open_blocks(self) -> BlockPool | None:
        """Opens the blocks that the client requests, if they are available."""
        memory, size = self._streams.shared_memory, self._stream.payload_bytes
        if memory is None or memory.refusal or not size or self._opening.blocks <= 0:
            return None
        return memory.open_pool(self._opening.blocks, size)

    def _offer(self) -> stream_pb2.SharedMemory:
        blocks, memory = self._blocks, self._streams.shared_memory
        if blocks is not None:
            return stream_pb2.SharedMemory(
                key=blocks.key, blocks=blocks.count, block_bytes=blocks.block_bytes
            )
        refusal = (
            "the server does not listen on a Unix socket"
            if memory is None
            else (memory.refusal or "the batches' sizes vary")
        )
        return stream_pb2.SharedMemory(refusal=refusal)

    def _send(self, encoded: EncodedAnswer) -> Iterator[bytes]:
        begin, left = time.perf_counter(), encoded.count
        # The caller keeps the answer until the next one, but must not keep a sent batch.
        try:
            for message in encoded.messages:
                left -= 1
                yield message
            self._stream.session.on_sent()
        finally:
            # A peer that has its last batch leaves before gRPC asks for another message.
            if not left:
                self._trainer.position = encoded.position
                if encoded.samples is not None:
                    monitor = self._streams.instrument.monitor
                    monitor.count("infeed_batches", self.name)
                    monitor.count("infeed_samples", self.name, amount=encoded.samples)
                    for part, samples in encoded.parts.items():
                        monitor.count("infeed_part_samples", self.name, part, amount=samples)
                    monitor.count("infeed_sent_bytes", self.name, amount=encoded.payload_bytes)
                    record_stage(monitor, self.name, "send", begin, encoded.span)
                if encoded.span is not None:
                    encoded.span.end("sent")

    def _read(self, requests: Requests) -> None:
        try:
            for message in requests:
                kind = message.WhichOneof("event")
                if kind == "report":
                    self._answer_report(message.report)
                elif kind == "free":
                    self._free_blocks(message.free.blocks)
                elif kind != "batch":
                    raise InvalidRequestError(
                        "after StreamOpen, a stream accepts only BatchRequest, TrainerReport and "
                        "FreeBlocks"
                    )
                elif not self._submit(message.batch):
                    return
        except grpc.RpcError as ended:  # and `close` was called or will be
            # gRPC's frames in the traceback refer to the error: such a cycle would keep batches.
            ended.__traceback__ = None
        except Exception as error:  # noqa: BLE001 - else the stream would seem to end normally
            self.answers.add(error)
        finally:
            self.answers.add(None)

    def _submit(self, request: stream_pb2.BatchRequest) -> bool:
        """Submits a request; returns whether the stream is open."""
        if self._trainer.position is None:  # the first starts at the trainer's position
            self._trainer.position = request.start
            log_trainer("connected", self._trainer)
        self.answers.require_room()
        if request.free_blocks:
            self._free_blocks(request.free_blocks)
        with self._lock:
            if not self._closed:
                self._caller.require_access(self.name)
                span = self.traces.begin(request) if request.traceparent else None
                answer = self._stream.submit(request, span)
                encode = self._streams.encoder.encode
                self.answers.add(encode(self._stream, request, answer, span, self._blocks))
            return not self._closed

    def _free_blocks(self, numbers: Sequence[int]) -> None:
        if self._blocks is None:
            raise InvalidRequestError("a stream without shared memory has no blocks to return")
        self._blocks.free(numbers)

    def _answer_report(self, message: stream_pb2.TrainerReport) -> None:
        self._caller.require_access(self.name)
        try:
            report = TrainerReport.from_proto(message)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
        if (answer := self._streams.instrument.on_report(self._trainer, report)) is not None:
            self._report = answer
            self.answers.wake()


def _message(**event: Any) -> bytes:
    """Returns a serialized response with one event."""
    message: bytes = stream_pb2.StreamBatchesResponse(**event).SerializeToString()
    return message


_HEARTBEAT = _message(heartbeat=stream_pb2.Heartbeat())
