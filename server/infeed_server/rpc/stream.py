"""One StreamBatches call: requests are taken in on one thread, answers go out on another."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeAlias

import grpc
from google.protobuf.message import DecodeError

from infeed.errors import InfeedError, InvalidRequestError, ServerError
from infeed.v1 import stream_pb2
from infeed.wire import EncodedBatch
from infeed_server.engines.base import Answer
from infeed_server.engines.monitor import Monitor
from infeed_server.service.catalog import Catalog, Stream

log = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 5.0
"""How long a client hears nothing while no batch is ready."""

_MAX_OUTSTANDING = 1024
"""Requests of one stream that wait for their answer."""

_Pending: TypeAlias = tuple[int, "Future[Answer]"] | InfeedError | None
"""A request's id and its answer to come; or what is wrong with it; or the end."""


def serve_stream(
    catalog: Catalog, monitor: Monitor, messages: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[bytes]:
    """The answer side of one call, message by message."""
    requests = _parsed(messages)
    try:
        first = next(requests, None)
    except grpc.RpcError:
        return  # The peer is gone before it asked for anything.
    if first is None or first.WhichOneof("event") != "open":
        raise InvalidRequestError("the first message of a stream must be StreamOpen")
    stream = catalog.open(first.open)
    name = stream.pipeline.name
    monitor.stream_opened(name)
    intake = Intake(stream, requests)

    def end() -> None:
        intake.stop()
        stream.session.close()
        monitor.stream_closed(name)

    end_once = Once(end)
    # The peer may vanish while gRPC holds this generator still, so both its end and the call's
    # end clean up.
    if not context.add_callback(end_once):
        end_once()
        return
    try:
        intake.start()
        yield stream_pb2.StreamBatchesResponse(opened=stream.opened()).SerializeToString()
        yield from _answers(stream, intake, monitor)
    finally:
        end_once()


def _parsed(messages: Iterator[bytes]) -> Iterator[stream_pb2.StreamBatchesRequest]:
    # Not gRPC's deserializer, which answers garbage with INTERNAL and a traceback in the log.
    for message in messages:
        try:
            yield stream_pb2.StreamBatchesRequest.FromString(message)
        except DecodeError:
            raise InvalidRequestError(
                f"a message of {len(message)} bytes that is no StreamBatchesRequest"
            ) from None


class Once:
    """A function that runs at its first call and never again, whichever thread makes it."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._unused = threading.Lock()

    def __call__(self) -> None:
        if self._unused.acquire(blocking=False):
            self._function()


class Intake:
    """Takes requests in as fast as they come, so that the engine can work ahead."""

    def __init__(self, stream: Stream, requests: Iterator[stream_pb2.StreamBatchesRequest]) -> None:
        self._stream = stream
        self._requests = requests
        self._pending: queue.SimpleQueue[_Pending] = queue.SimpleQueue()
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._run, name="infeed-intake", daemon=True).start()

    def stop(self) -> None:
        """Wakes whoever waits in `next`; called when the peer is gone too.

        From then on nothing is submitted: a session that is closed would never let go of it.
        """
        with self._lock:
            self._stopped = True
        self._pending.put(None)

    def next(self, timeout: float) -> _Pending:
        """The oldest request with its future; None when there are no more. Raises `queue.Empty`."""
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
                    self._pending.put(self._accept(message))
        except InfeedError as error:
            self._pending.put(error)
        except grpc.RpcError:
            pass  # The peer cancelled; `stop` has been called, or will be.
        except Exception as error:  # or the stream would end as if all were well
            log.exception("a request could not be taken in")
            self._pending.put(ServerError(f"{type(error).__name__}: {error}"))
        finally:
            self._pending.put(None)

    def _accept(self, message: stream_pb2.StreamBatchesRequest) -> _Pending:
        if message.WhichOneof("event") != "batch":
            raise InvalidRequestError("after StreamOpen, a stream takes BatchRequest only")
        if self._pending.qsize() >= _MAX_OUTSTANDING:
            raise InvalidRequestError(
                f"more than {_MAX_OUTSTANDING} requests wait for their answer"
            )
        return message.batch.request_id, self._stream.submit(message.batch)


def _answers(stream: Stream, intake: Intake, monitor: Monitor) -> Iterator[bytes]:
    while True:
        try:
            pending = intake.next(_HEARTBEAT_SECONDS)
        except queue.Empty:
            yield _HEARTBEAT
            continue
        if pending is None:
            return
        if isinstance(pending, InfeedError):
            raise pending
        request_id, future = pending
        while True:
            try:
                answer = future.result(_HEARTBEAT_SECONDS)
                break
            except CancelledError:
                return  # The stream was closed: by its peer, or with the server.
            except FutureTimeoutError:
                if intake.stopped:
                    return
                yield _HEARTBEAT
        yield from _send(stream, request_id, answer, monitor)


def _send(stream: Stream, request_id: int, answer: Answer, monitor: Monitor) -> Iterator[bytes]:
    begin = time.perf_counter()
    encoded = stream.encode(request_id, answer)
    if not isinstance(encoded, EncodedBatch):
        yield stream_pb2.StreamBatchesResponse(end=encoded).SerializeToString()
        stream.session.sent()
        return
    yield from encoded.frames()
    stream.session.sent()
    name, header = stream.pipeline.name, encoded.header
    filled = sum(sample >= 0 for sample in header.sample_ids)
    monitor.batch_sent(name, filled, header.payload_size)
    monitor.stage(name, "send", time.perf_counter() - begin)


_HEARTBEAT = stream_pb2.StreamBatchesResponse(heartbeat=stream_pb2.Heartbeat()).SerializeToString()
