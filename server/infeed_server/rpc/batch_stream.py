"""Streams of batches: the thread of a call sends responses, another one reads its requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from infeed.shared.errors import InvalidRequestError, ServerUnavailableError, SourceError
from infeed.shared.report import REPORT_INTERVAL_SECONDS
from infeed.v1 import stream_pb2
from infeed_server.engines.monitor import Monitor, record_stage
from infeed_server.observe.jobs import ConnectedTrainer, JobKey, Jobs
from infeed_server.rpc.batch_encoder import BatchEncoder, EncodedAnswer
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.request_reader import RequestReader
from infeed_server.rpc.trainer_log import TrainerLog
from infeed_server.serving.auth import Caller
from infeed_server.serving.catalog import BatchStream, Catalog

if TYPE_CHECKING:
    from infeed_server.rpc.request_tracer import RequestTracer

_HEARTBEAT_INTERVAL_SECONDS = 5.0
"""Time between messages while no batch is ready: with more, clients take the server for lost."""


class BatchStreams:
    """All streams of batches of a server, which end when it does."""

    def __init__(
        self,
        catalog: Catalog,
        encoder: BatchEncoder,
        monitor: Monitor,
        trainers: TrainerLog,
        jobs: Jobs,
        tracer: RequestTracer | None = None,
    ) -> None:
        """Without a `tracer`, no batch is traced."""
        self._catalog = catalog
        self._encoder = encoder
        self._monitor = monitor
        self._trainers = trainers
        self._jobs = jobs
        self._tracer = tracer
        self._readers: set[RequestReader] = set()
        self._draining = self._ended = False

    def drain(self) -> None:
        """Makes open streams announce the shutdown. They continue until `end`."""
        self._draining = True
        self._wake()

    def end(self) -> None:
        """Ends the streams that are left, with a status."""
        self._draining = self._ended = True
        self._wake()

    def serve(
        self, requests: Iterator[stream_pb2.StreamBatchesRequest], call: ServerCall
    ) -> Iterator[bytes]:
        """Yields the responses of one call."""
        first = next(requests, None)
        if first is None or first.WhichOneof("event") != "open":
            raise InvalidRequestError("the first message of a stream must be StreamOpen")
        caller: Caller = call.caller
        caller.require_access(first.open.pipeline)
        stream = self._catalog.visible_to(caller).open(first.open)
        name = stream.pipeline.name
        self._monitor.on_stream_opened(name)
        key = JobKey(name, stream.seed, stream.batch_size, stream.world_size, first.open.job_name)
        call.trainer = trainer = self._jobs.connect(
            *(key, first.open.rank, first.open.feed_id, call.peer()),
            shortage=stream.session.shortage_seconds,
        )
        traces = None if self._tracer is None else self._tracer.open_stream(first.open, call.peer())
        reader = RequestReader(
            stream,
            self._encoder,
            self._noted(requests, trainer),
            lambda: caller.require_access(name),
            lambda report: self._jobs.on_report(trainer, report),
            traces,
        )
        closing = ExitStack()
        closing.callback(self._monitor.on_stream_closed, name)
        closing.callback(stream.session.close)
        closing.callback(reader.stop)
        closing.callback(self._jobs.disconnect, trainer)
        close = _Once(closing)
        # The call may end while gRPC still holds this generator, so the end of either cleans up.
        if not call.add_callback(close):
            close()
            return
        self._readers.add(reader)
        try:
            reader.start()
            yield _opened(stream, first.open)
            yield from self._responses(stream, reader, trainer)
        except SourceError as error:
            self._monitor.on_source_error(name, error)
            raise
        finally:
            self._readers.discard(reader)
            close()
            # Not in `close`: a peer that has its last batch leaves before it counts as sent.
            if traces is not None:
                traces.close()

    def _noted(
        self, requests: Iterator[stream_pb2.StreamBatchesRequest], trainer: ConnectedTrainer
    ) -> Iterator[stream_pb2.StreamBatchesRequest]:
        """Yields the requests; logs the trainer at the first one, which has its position."""
        for request in requests:
            if trainer.position is None and request.WhichOneof("event") == "batch":
                trainer.position = request.batch.start
                self._trainers.on_begin(trainer)
            yield request

    def _wake(self) -> None:
        for reader in tuple(self._readers):
            reader.wake()

    def _responses(
        self, stream: BatchStream, reader: RequestReader, trainer: ConnectedTrainer
    ) -> Iterator[bytes]:
        is_announced = False
        heartbeat_at = time.monotonic() + _HEARTBEAT_INTERVAL_SECONDS
        while True:
            if self._ended:
                raise ServerUnavailableError("the server is shutting down: connect to another one")
            if self._draining and not is_announced:
                is_announced = True
                yield _DRAINING
            if (report := reader.take_report()) is not None:
                yield _message(report=report.to_proto())
            if (answer := reader.take()) is not None:
                yield from self._send(stream, answer)
                trainer.position = answer.position
            elif reader.ended:
                return
            elif reader.wait(heartbeat_at - time.monotonic()):
                continue
            else:
                yield _HEARTBEAT
            heartbeat_at = time.monotonic() + _HEARTBEAT_INTERVAL_SECONDS

    def _send(self, stream: BatchStream, encoded: EncodedAnswer) -> Iterator[bytes]:
        begin = time.perf_counter()
        # The caller keeps the answer until the next one; emptied, it does not keep its memory.
        try:
            while encoded.messages:
                yield encoded.messages.popleft()
            stream.session.on_sent()
        finally:
            # A peer that has its last batch leaves before gRPC asks for another message.
            if not encoded.messages:
                self._record_sent(stream.pipeline.name, encoded, begin)

    def _record_sent(self, pipeline: str, encoded: EncodedAnswer, begin: float) -> None:
        if encoded.samples is not None:
            self._monitor.on_batch_sent(pipeline, encoded.samples, encoded.payload_bytes)
            record_stage(self._monitor, pipeline, "send", begin, encoded.span)
        if encoded.span is not None:
            encoded.span.end("sent")


class _Once:
    """Closes a stack at the first call only, whichever thread makes it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._unused = threading.Lock()

    def __call__(self) -> None:
        if self._unused.acquire(blocking=False):
            self._stack.close()


def _opened(stream: BatchStream, request: stream_pb2.StreamOpen) -> bytes:
    opened = stream.opened_message()
    opened.request.CopyFrom(request)
    opened.request.ClearField("feed_id")
    opened.report_interval_seconds = REPORT_INTERVAL_SECONDS
    return _message(opened=opened)


def _message(**event: Any) -> bytes:
    """Returns the message of one event of a response."""
    message: bytes = stream_pb2.StreamBatchesResponse(**event).SerializeToString()
    return message


_HEARTBEAT = _message(heartbeat=stream_pb2.Heartbeat())
_DRAINING = _message(draining=stream_pb2.Draining())
