"""One StreamBatches call: one thread reads requests, another sends the responses."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from infeed.shared.errors import InvalidRequestError, ServerUnavailableError, SourceError
from infeed.shared.report import REPORT_INTERVAL_SECONDS, ServerReport, TrainerReport
from infeed.v1 import stream_pb2
from infeed_server.engines.monitor import Monitor, record_stage
from infeed_server.observe.jobs import JobKey, Jobs
from infeed_server.rpc.batch_encoder import BatchEncoder, EncodedAnswer
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.messages import parse_message
from infeed_server.rpc.shutdown import Shutdown
from infeed_server.rpc.trainer_log import FeedProgress, TrainerLog
from infeed_server.serving.auth import Caller
from infeed_server.serving.catalog import BatchStream, Catalog

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan
    from infeed_server.rpc.request_tracer import RequestTracer, StreamTracer

_HEARTBEAT_INTERVAL_SECONDS = 5.0
"""Between messages to a client while no batch is ready."""

_MAX_PENDING_REQUESTS = 1024
"""Unanswered requests of one stream; more are an error."""

_MAX_EARLY_REPORTS = 300
"""Reports of one stream that may come too early, one after the other: those of five minutes arrive
at once after a stop. More are an error, since each takes the processor for a moment."""

_Pending: TypeAlias = "Future[EncodedAnswer] | Exception | None"
"""The response to a request, or the error in it; None at the end of the stream."""


def serve_stream(
    catalog: Catalog,
    encoder: BatchEncoder,
    monitor: Monitor,
    shutdown: Shutdown,
    trainers: TrainerLog,
    jobs: Jobs,
    tracer: RequestTracer | None,
    messages: Iterator[bytes],
    context: ServerCall,
) -> Iterator[bytes]:
    """Yields the responses of one call; without a `tracer`, no batch is traced."""
    requests = (parse_message(stream_pb2.StreamBatchesRequest, each) for each in messages)
    first = next(requests, None)
    if first is None or first.WhichOneof("event") != "open":
        raise InvalidRequestError("the first message of a stream must be StreamOpen")
    caller: Caller = context.caller
    caller.require_access(first.open.pipeline)
    stream = catalog.visible_to(caller).open(first.open)
    name = stream.pipeline.name
    monitor.on_stream_opened(name)
    feed = FeedProgress(first.open, context.peer(), trainers.on_begin)
    context.feed = feed
    key = JobKey(name, stream.seed, stream.batch_size, stream.world_size, first.open.job_name)
    trainer = jobs.connect(
        *(key, first.open.rank, first.open.feed_id, context.peer()),
        position=lambda: feed.position,
        shortage=stream.session.shortage_seconds,
    )
    traces = None if tracer is None else tracer.open_stream(first.open, context.peer())
    reader = RequestReader(
        stream,
        encoder,
        feed.watch(requests),
        lambda: caller.require_access(name),
        lambda report: jobs.on_report(trainer, report),
        traces,
    )

    def end() -> None:
        jobs.disconnect(trainer)
        reader.stop()
        stream.session.close()
        monitor.on_stream_closed(name)

    end_once = Once(end)
    # The call may end while gRPC still holds this generator, so the end of either cleans up.
    if not context.add_callback(end_once):
        end_once()
        return
    try:
        reader.start()
        opened = stream.opened_message()
        opened.request.CopyFrom(first.open)
        opened.request.ClearField("feed_id")
        opened.report_interval_seconds = REPORT_INTERVAL_SECONDS
        yield _message(opened=opened)
        with shutdown.notifies(reader.wake):
            yield from _responses(stream, reader, feed, monitor, shutdown)
    except SourceError as error:
        monitor.on_source_error(name, error)
        raise
    finally:
        end_once()
        # Not in `end`: a peer that has its last batch leaves before that batch counts as sent.
        if traces is not None:
            traces.close()


class Once:
    """A function that runs at its first call only, whichever thread makes it."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._unused = threading.Lock()

    def __call__(self) -> None:
        if self._unused.acquire(blocking=False):
            self._function()


class RequestReader:
    """Reads requests on its own thread and submits them, so that the engine can work ahead."""

    def __init__(
        self,
        stream: BatchStream,
        encoder: BatchEncoder,
        requests: Iterator[stream_pb2.StreamBatchesRequest],
        check_access: Callable[[], None],
        on_report: Callable[[TrainerReport], ServerReport | None],
        traces: StreamTracer | None = None,
    ) -> None:
        """`check_access` raises when the caller's access has ended since the stream was opened.
        `on_report` returns the answer to a report, or None to ignore it."""
        self._traces = traces
        self._check_access = check_access
        self._on_report = on_report
        self._report: ServerReport | None = None
        """The answer to the last report, until it is sent."""
        self._early_reports = 0
        self._stream = stream
        self._encoder = encoder
        self._requests = requests
        self._pending: deque[_Pending] = deque()
        self._wakeup = threading.Event()
        self._stopped = False
        self._ended = False
        self._lock = threading.Lock()

    def start(self) -> None:
        run = partial(contextvars.copy_context().run, self._run)  # the log has the call's fields
        threading.Thread(target=run, name="infeed-requests", daemon=True).start()

    def stop(self) -> None:
        """Ends the stream's answers, and wakes the thread in `wait`. Nothing is submitted later.

        A request that was submitted to a closed session would never be freed.
        """
        with self._lock:
            self._stopped = True
        self.wake()

    @property
    def ended(self) -> bool:
        """Whether `take` returns nothing more."""
        return self._stopped or self._ended

    def take(self) -> EncodedAnswer | None:
        """Returns the answer to the oldest request if it is ready. Raises the error in its place.

        Called by one thread.
        """
        if not self._pending:
            return None
        oldest = self._pending[0]
        if isinstance(oldest, Future) and not oldest.done():
            return None
        self._pending.popleft()
        if isinstance(oldest, Exception):
            raise oldest
        try:
            if oldest is not None:
                return oldest.result()
        except CancelledError:
            pass  # the session was closed, by the client or by the server's end
        self._ended = True
        return None

    def take_report(self) -> ServerReport | None:
        """Returns the answer to a report if it was not sent yet."""
        report, self._report = self._report, None
        return report

    def wait(self, timeout: float) -> bool:
        """Waits until `take` may return something, or `wake`; returns False if it times out."""
        is_woken = self._wakeup.wait(timeout)
        self._wakeup.clear()
        return is_woken

    def wake(self) -> None:
        """Ends the current or next `wait`. Callable from any thread."""
        self._wakeup.set()

    def _run(self) -> None:
        try:
            for message in self._requests:
                if message.WhichOneof("event") == "report":
                    self._answer_report(message.report)
                    continue
                with self._lock:
                    if self._stopped:
                        return
                    self._add(self._submit(message))
        except grpc.RpcError:
            pass  # `stop` has been called, or will be
        except Exception as error:  # noqa: BLE001 - else the stream would seem to end normally
            self._add(error)
        finally:
            self._add(None)

    def _add(self, pending: _Pending) -> None:
        self._pending.append(pending)
        if isinstance(pending, Future):
            wakeup = self._wakeup  # the reader refers to the future: a cycle would keep its batch
            pending.add_done_callback(lambda _: wakeup.set())
        else:
            self.wake()

    def _answer_report(self, message: stream_pb2.TrainerReport) -> None:
        self._check_access()
        try:
            report = TrainerReport.from_proto(message)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
        if (answer := self._on_report(report)) is not None:
            self._early_reports = 0
            self._report = answer
            self.wake()
            return
        self._early_reports += 1
        if self._early_reports > _MAX_EARLY_REPORTS:
            raise InvalidRequestError(
                f"more than {_MAX_EARLY_REPORTS} reports came before they were due; send one in "
                f"{REPORT_INTERVAL_SECONDS:g} s"
            )

    def _submit(self, message: stream_pb2.StreamBatchesRequest) -> _Pending:
        if message.WhichOneof("event") != "batch":
            raise InvalidRequestError(
                "after StreamOpen, a stream takes BatchRequest and TrainerReport only"
            )
        if len(self._pending) >= _MAX_PENDING_REQUESTS:
            raise InvalidRequestError(f"more than {_MAX_PENDING_REQUESTS} requests are unanswered")
        self._check_access()
        span: BatchSpan | None = None
        if self._traces is not None and message.batch.traceparent:
            span = self._traces.begin(message.batch)
        answer = self._stream.submit(message.batch, span)
        return self._encoder.encode(self._stream, message.batch, answer, span)


def _responses(
    stream: BatchStream,
    reader: RequestReader,
    feed: FeedProgress,
    monitor: Monitor,
    shutdown: Shutdown,
) -> Iterator[bytes]:
    is_announced = False
    heartbeat_at = time.monotonic() + _HEARTBEAT_INTERVAL_SECONDS
    while True:
        if shutdown.ended:
            raise ServerUnavailableError("the server is shutting down: connect to another one")
        if shutdown.draining and not is_announced:
            is_announced = True
            yield _DRAINING
        if (report := reader.take_report()) is not None:
            yield _message(report=report.to_proto())
        if (answer := reader.take()) is not None:
            yield from _send(stream, answer, monitor)
            feed.on_sent()
        elif reader.ended:
            return
        elif reader.wait(heartbeat_at - time.monotonic()):
            continue
        else:
            yield _HEARTBEAT
        heartbeat_at = time.monotonic() + _HEARTBEAT_INTERVAL_SECONDS


def _send(stream: BatchStream, encoded: EncodedAnswer, monitor: Monitor) -> Iterator[bytes]:
    begin = time.perf_counter()
    # The caller keeps the answer until the next batch; emptied, it does not keep this one's memory.
    while encoded.messages:
        yield encoded.messages.popleft()
    stream.session.on_sent()
    if encoded.samples is not None:
        name = stream.pipeline.name
        monitor.on_batch_sent(name, encoded.samples, encoded.payload_bytes)
        record_stage(monitor, name, "send", begin, encoded.span)
    if encoded.span is not None:
        encoded.span.end("sent")


def _message(**event: Any) -> bytes:
    """Returns the message of one event of a response."""
    message: bytes = stream_pb2.StreamBatchesResponse(**event).SerializeToString()
    return message


_HEARTBEAT = _message(heartbeat=stream_pb2.Heartbeat())
_DRAINING = _message(draining=stream_pb2.Draining())
