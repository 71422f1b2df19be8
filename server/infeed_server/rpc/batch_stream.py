"""One StreamBatches call: one thread reads requests, another sends the responses."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from infeed.errors import InvalidRequestError
from infeed.v1 import stream_pb2
from infeed_server.engines.monitor import Monitor
from infeed_server.rpc.batch_encoder import BatchEncoder, EncodedAnswer
from infeed_server.rpc.call import CallCancelledError, GrpcFrames, ServerCall, grpc_frames
from infeed_server.serving.auth import Caller
from infeed_server.serving.catalog import BatchStream, Catalog

_HEARTBEAT_INTERVAL_SECONDS = 5.0
"""Between messages to a client while no batch is ready."""

_MAX_PENDING_REQUESTS = 1024
"""Unanswered requests of one stream; more are an error."""

_Pending: TypeAlias = "Future[EncodedAnswer] | Exception | None"
"""The response to a request, or the error in it; None at the end of the stream."""


def serve_stream(
    catalog: Catalog,
    encoder: BatchEncoder,
    monitor: Monitor,
    messages: Iterator[bytes],
    context: ServerCall,
) -> Iterator[GrpcFrames]:
    """Yields the responses of one call."""
    requests = (parse_message(stream_pb2.StreamBatchesRequest, each) for each in messages)
    try:
        first = next(requests, None)
    except CallCancelledError:
        return
    if first is None or first.WhichOneof("event") != "open":
        raise InvalidRequestError("the first message of a stream must be StreamOpen")
    caller: Caller = context.caller
    caller.require_access(first.open.pipeline)
    stream = catalog.visible_to(caller).open(first.open)
    name = stream.pipeline.name
    monitor.on_stream_opened(name)
    reader = RequestReader(stream, encoder, requests, lambda: caller.require_access(name))

    def end() -> None:
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
        opened = stream_pb2.StreamBatchesResponse(opened=stream.opened_message())
        yield grpc_frames([opened.SerializeToString()])
        yield from _responses(stream, reader, monitor)
    finally:
        end_once()


def parse_message(request_type: Any, message: bytes) -> Any:
    """Parses a message of the class `request_type`. Raises `InvalidRequestError`.

    gRPC's own deserializer maps garbage to INTERNAL and logs a traceback.
    """
    try:
        return request_type.FromString(message)
    except DecodeError:
        name = request_type.DESCRIPTOR.name
        raise InvalidRequestError(
            f"a message of {len(message)} bytes is not a valid {name}"
        ) from None


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
    ) -> None:
        """`check_access` raises when the caller's access has ended since the stream was opened."""
        self._check_access = check_access
        self._stream = stream
        self._encoder = encoder
        self._requests = requests
        self._pending: queue.SimpleQueue[_Pending] = queue.SimpleQueue()
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._run, name="infeed-requests", daemon=True).start()

    def stop(self) -> None:
        """Wakes the thread in `next`. Nothing is submitted afterwards.

        A request that was submitted to a closed session would never be freed.
        """
        with self._lock:
            self._stopped = True
        self._pending.put(None)

    def next(self, timeout: float) -> _Pending:
        """Returns the response to the oldest request; None at the end. Raises `queue.Empty`."""
        pending = self._pending.get(timeout=timeout)
        return None if self._stopped else pending

    @property
    def stopped(self) -> bool:
        return self._stopped

    def _run(self) -> None:
        try:
            for message in self._requests:
                with self._lock:
                    if self._stopped:
                        return
                    self._pending.put(self._submit(message))
        except CallCancelledError:
            pass  # `stop` has been called, or will be
        except Exception as error:  # noqa: BLE001 - else the stream would seem to end normally
            self._pending.put(error)
        finally:
            self._pending.put(None)

    def _submit(self, message: stream_pb2.StreamBatchesRequest) -> _Pending:
        if message.WhichOneof("event") != "batch":
            raise InvalidRequestError("after StreamOpen, a stream takes BatchRequest only")
        if self._pending.qsize() >= _MAX_PENDING_REQUESTS:
            raise InvalidRequestError(f"more than {_MAX_PENDING_REQUESTS} requests are unanswered")
        self._check_access()
        answer = self._stream.submit(message.batch)
        return self._encoder.encode(self._stream, message.batch.request_id, answer)


def _responses(
    stream: BatchStream, reader: RequestReader, monitor: Monitor
) -> Iterator[GrpcFrames]:
    while True:
        try:
            pending = reader.next(_HEARTBEAT_INTERVAL_SECONDS)
        except queue.Empty:
            yield _HEARTBEAT
            continue
        if pending is None:
            return
        if isinstance(pending, Exception):
            raise pending
        while True:
            try:
                encoded = pending.result(_HEARTBEAT_INTERVAL_SECONDS)
                break
            except CancelledError:
                return  # the session was closed, by the client or by the server's end
            except FutureTimeoutError:
                if reader.stopped:
                    return
                yield _HEARTBEAT
        yield from _send(stream, encoded, monitor)


def _send(stream: BatchStream, encoded: EncodedAnswer, monitor: Monitor) -> Iterator[GrpcFrames]:
    begin = time.perf_counter()
    yield encoded.frames
    # The caller keeps the list until the next batch; emptied, it does not keep this batch's memory.
    encoded.frames.clear()
    stream.session.on_sent()
    if encoded.samples is not None:
        name = stream.pipeline.name
        monitor.on_batch_sent(name, encoded.samples, encoded.payload_bytes)
        monitor.on_stage(name, "send", time.perf_counter() - begin)


_HEARTBEAT = grpc_frames(
    [stream_pb2.StreamBatchesResponse(heartbeat=stream_pb2.Heartbeat()).SerializeToString()]
)
