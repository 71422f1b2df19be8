"""Request reader of a stream: a thread that submits requests, so that the engine works ahead."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import grpc

from infeed.shared.errors import InvalidRequestError
from infeed.shared.report import ServerReport, TrainerReport
from infeed.v1 import stream_pb2
from infeed_server.rpc.batch_encoder import BatchEncoder, EncodedAnswer
from infeed_server.serving.catalog import BatchStream

if TYPE_CHECKING:
    from infeed_server.rpc.request_tracer import StreamTracer

_MAX_PENDING_REQUESTS = 1024
"""Requests of one stream: with fewer, a trainer could ask less far ahead; more are an error."""

_Pending: TypeAlias = "Future[EncodedAnswer] | Exception | None"
"""The response to a request, or the error in it; None at the end of the stream."""


class RequestReader:
    """Reads requests on its own thread, and keeps their answers in order."""

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
            self._report = answer
            self.wake()

    def _submit(self, message: stream_pb2.StreamBatchesRequest) -> _Pending:
        if message.WhichOneof("event") != "batch":
            raise InvalidRequestError(
                "after StreamOpen, a stream takes BatchRequest and TrainerReport only"
            )
        if len(self._pending) >= _MAX_PENDING_REQUESTS:
            raise InvalidRequestError(f"more than {_MAX_PENDING_REQUESTS} requests are unanswered")
        self._check_access()
        span = None
        if self._traces is not None and message.batch.traceparent:
            span = self._traces.begin(message.batch)
        answer = self._stream.submit(message.batch, span)
        return self._encoder.encode(self._stream, message.batch, answer, span)
