"""One StreamBatches call: requests are taken in on one thread, answers go out on another."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeAlias

from google.protobuf.message import DecodeError

from infeed.errors import InvalidRequestError
from infeed.v1 import stream_pb2
from infeed_server.engines.monitor import Monitor
from infeed_server.rpc.call import Framed, PeerGoneError, ServerCall, framed
from infeed_server.rpc.encoder import Encoded, Encoder
from infeed_server.service.catalog import Catalog, Stream

_HEARTBEAT_SECONDS = 5.0
"""How long a client hears nothing while no batch is ready."""

_MAX_OUTSTANDING = 1024
"""Requests of one stream that wait for their answer."""

_Pending: TypeAlias = "Future[Encoded] | Exception | None"
"""The answer to come; or what is wrong with the request; or the end."""


def serve_stream(
    catalog: Catalog,
    encoder: Encoder,
    monitor: Monitor,
    messages: Iterator[bytes],
    context: ServerCall,
) -> Iterator[Framed]:
    """The answer side of one call, message by message."""
    requests = _parsed(messages)
    try:
        first = next(requests, None)
    except PeerGoneError:
        return  # The peer is gone before it asked for anything.
    if first is None or first.WhichOneof("event") != "open":
        raise InvalidRequestError("the first message of a stream must be StreamOpen")
    context.caller.require(first.open.pipeline)
    stream = catalog.seen_by(context.caller).open(first.open)
    name = stream.pipeline.name
    monitor.stream_opened(name)
    intake = Intake(stream, encoder, requests, lambda: context.caller.require(name))

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
        opened = stream_pb2.StreamBatchesResponse(opened=stream.opened())
        yield framed([opened.SerializeToString()])
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

    def __init__(
        self,
        stream: Stream,
        encoder: Encoder,
        requests: Iterator[stream_pb2.StreamBatchesRequest],
        check: Callable[[], None],
    ) -> None:
        """`check` raises when the peer may not ask any more, which can end in an open stream."""
        self._check = check
        self._stream = stream
        self._encoder = encoder
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
        """The answer to the oldest request; None when there are no more. Raises `queue.Empty`."""
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
        except PeerGoneError:
            pass  # The peer cancelled; `stop` has been called, or will be.
        except Exception as error:  # noqa: BLE001 - or the stream would end as if all were well
            self._pending.put(error)
        finally:
            self._pending.put(None)

    def _accept(self, message: stream_pb2.StreamBatchesRequest) -> _Pending:
        if message.WhichOneof("event") != "batch":
            raise InvalidRequestError("after StreamOpen, a stream takes BatchRequest only")
        if self._pending.qsize() >= _MAX_OUTSTANDING:
            raise InvalidRequestError(
                f"more than {_MAX_OUTSTANDING} requests wait for their answer"
            )
        self._check()
        answer = self._stream.submit(message.batch)
        return self._encoder.encode(self._stream, message.batch.request_id, answer)


def _answers(stream: Stream, intake: Intake, monitor: Monitor) -> Iterator[Framed]:
    while True:
        try:
            pending = intake.next(_HEARTBEAT_SECONDS)
        except queue.Empty:
            yield _HEARTBEAT
            continue
        if pending is None:
            return
        if isinstance(pending, Exception):
            raise pending
        while True:
            try:
                encoded = pending.result(_HEARTBEAT_SECONDS)
                break
            except CancelledError:
                return  # The stream was closed: by its peer, or with the server.
            except FutureTimeoutError:
                if intake.stopped:
                    return
                yield _HEARTBEAT
        yield from _send(stream, encoded, monitor)


def _send(stream: Stream, encoded: Encoded, monitor: Monitor) -> Iterator[Framed]:
    begin = time.perf_counter()
    yield encoded.messages
    # Whoever still holds the list, as they do until the next batch comes, must not hold a batch.
    encoded.messages.clear()
    stream.session.sent()
    if encoded.samples is not None:
        name = stream.pipeline.name
        monitor.batch_sent(name, encoded.samples, encoded.payload_bytes)
        monitor.stage(name, "send", time.perf_counter() - begin)


_HEARTBEAT = framed(
    [stream_pb2.StreamBatchesResponse(heartbeat=stream_pb2.Heartbeat()).SerializeToString()]
)
