"""A gRPC server over an engine that answers on demand, and a client that sends any message."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from tests.harness.recorded import RecordingInstrument
from tests.harness.waiting import wait_until
from tests.server.rpc.plain_client import PlainClient

from infeed.shared.errors import InfeedError
from infeed.shared.spec import FieldSpec, Guarantee, PipelineSpec
from infeed.v1 import stream_pb2
from infeed_server.config.address import Address
from infeed_server.engines.base import Answer, HostBatch, Request, Trainer
from infeed_server.engines.figures import Figures
from infeed_server.rpc.server import RpcServer
from infeed_server.serving.catalog import Catalog

SLOTS = 4


class FakeSession:
    """A stream of a `FakeEngine`, with the requests it has received."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self.requests: list[Request] = []
        self.closed = False

    def submit(self, request: Request) -> Future[Answer]:
        assert not self.closed
        self.requests.append(request)
        future: Future[Answer] = Future()
        self._engine.submit(self, request, future)
        return future

    def set_batch_bytes(self, size: int) -> None:
        self._engine.batch_bytes = size

    def on_sent(self) -> None:
        self._engine.sent += 1

    def held_seconds(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.closed = True
        self._engine.cancel(self)


class FakeEngine:
    """Answers at once, or while `held` is set, when `release` is called."""

    def __init__(self, name: str) -> None:
        field = (FieldSpec("x", "int64"),)
        self.spec = PipelineSpec(
            name, field, field, (), 1 << 40, "f" * 32, Guarantee(), SLOTS, 7, "drop", "raise"
        )
        self.held = False
        self.error: Exception | None = None
        self.sent = 0
        self.batch_bytes = 0
        self.batches: list[weakref.ref[Any]] = []
        """The arrays of its batches; dead once the memory of a batch is free."""
        self.sessions: list[FakeSession] = []
        self._pending: list[tuple[FakeSession, Request, Future[Answer]]] = []
        self._lock = threading.Lock()

    def open(self, slots: int, epochs: int, trainer: Trainer) -> FakeSession:
        session = FakeSession(self)
        self.sessions.append(session)
        return session

    def submit(self, session: FakeSession, request: Request, future: Future[Answer]) -> None:
        with self._lock:
            self._pending.append((session, request, future))
        if not self.held:
            self.release()

    def release(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        for _, request, future in pending:
            if not future.set_running_or_notify_cancel():
                continue
            if self.error is not None:
                future.set_exception(self.error)
                continue
            ids = np.arange(request.start, request.start + request.slots)
            mask = np.arange(request.slots) < request.count
            self.batches.append(weakref.ref(ids))
            future.set_result(HostBatch(request.start, 0, {"x": ids}, ids, mask))

    def cancel(self, session: FakeSession) -> None:
        with self._lock:
            cancelled = [future for owner, _, future in self._pending if owner is session]
            self._pending = [pending for pending in self._pending if pending[0] is not session]
        for future in cancelled:
            future.cancel()

    def warm_up(self) -> None: ...

    def figures(self) -> Figures:
        with self._lock:
            return Figures(queued_requests=len(self._pending))

    def close(self) -> None: ...


class StreamCall:
    """One StreamBatches call that sends what a test passes: messages or raw bytes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        method: Any = channel.stream_stream("/infeed.v1.FeedService/StreamBatches")
        self.call = method(iter(self._requests.get, None), timeout=120)

    def send(self, *messages: bytes | stream_pb2.StreamBatchesRequest) -> StreamCall:
        for message in messages:
            raw = message if isinstance(message, bytes) else message.SerializeToString()
            self._requests.put(raw)
        return self

    def open(self, pipeline: str = "held", **options: Any) -> StreamCall:
        event = stream_pb2.StreamOpen(pipeline=pipeline, **options)
        return self.send(stream_pb2.StreamBatchesRequest(open=event))

    def request(
        self, start: int, count: int = SLOTS, request_id: int = 0, **more: int
    ) -> StreamCall:
        event = stream_pb2.BatchRequest(request_id=request_id, start=start, count=count, **more)
        return self.send(stream_pb2.StreamBatchesRequest(batch=event))

    def half_close(self) -> StreamCall:
        self._requests.put(None)
        return self

    def next(self) -> stream_pb2.StreamBatchesResponse:
        """Returns the next response other than a heartbeat."""
        for message in self.call:
            response = stream_pb2.StreamBatchesResponse.FromString(message)
            if not response.HasField("heartbeat"):
                return response
        raise StopIteration

    def rest(self) -> tuple[list[stream_pb2.StreamBatchesResponse], grpc.RpcError | None]:
        """Returns all responses to the end, and the error that ended the call, if any."""
        responses = []
        try:
            while True:
                responses.append(self.next())
        except StopIteration:
            return responses, None
        except grpc.RpcError as error:
            return responses, error
        finally:
            self.half_close()

    def cancel(self) -> None:
        self.call.cancel()
        self.half_close()


@dataclass
class RunningServer:
    """A server with the pipelines `held` and `other`, and what it reports."""

    server: RpcServer
    held: FakeEngine
    instrument: RecordingInstrument

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def reported(self, metric: str, *labels: str) -> float:
        """Returns the sum of a metric that has been counted or measured."""
        return self.instrument.monitor.sums[(metric, *labels)]

    def gauge(self, name: str) -> float:
        """Returns the same of `infeed_NAME` of the pipeline `held`."""
        return self.reported(f"infeed_{name}", "held")


@pytest.fixture
def start() -> Iterator[Callable[..., RunningServer]]:
    """Starts servers: `start(credentials=..., limits=...)`, with the options of `RpcServer`."""
    started: list[RunningServer] = []

    def make(credentials: Any = None, **options: Any) -> RunningServer:
        held = FakeEngine("held")
        instrument = RecordingInstrument()
        broken = {"lost": "no file matches '/data/secret/a.npz'"}
        catalog = Catalog({"held": held, "other": FakeEngine("other")}, broken=broken)
        server = RpcServer(catalog, instrument, **options)
        server.open(Address.parse("127.0.0.1:0"), credentials)
        server.set_serving(True)
        server.start()
        started.append(RunningServer(server, held, instrument))
        return started[-1]

    yield make
    for server in started:
        server.server.stop(0)


@pytest.fixture
def live(start: Callable[..., RunningServer]) -> RunningServer:
    return start()


@pytest.fixture
def channel(live: RunningServer) -> Iterator[grpc.Channel]:
    """Connects gRPC's own client to the server `live`."""
    with grpc.insecure_channel(live.address) as channel:
        yield channel


@pytest.fixture
def open_call() -> Iterator[Callable[[grpc.Channel], StreamCall]]:
    """Opens calls on a channel; all are cancelled after the test."""
    calls: list[StreamCall] = []

    def make(channel: grpc.Channel) -> StreamCall:
        calls.append(StreamCall(channel))
        return calls[-1]

    yield make
    for call in calls:
        call.cancel()


@pytest.fixture
def new_call(
    channel: grpc.Channel, open_call: Callable[[grpc.Channel], StreamCall]
) -> Callable[[], StreamCall]:
    """Opens calls on the server `live`."""
    return lambda: open_call(channel)


@pytest.fixture
def connect() -> Iterator[Callable[..., PlainClient]]:
    """Connects a client that enforces nothing: `connect(live, window=...)`."""
    with ExitStack() as stack:

        def make(live: RunningServer, **options: int) -> PlainClient:
            client = PlainClient(live.server.port, **options)
            stack.callback(client.socket.close)
            return client

        yield make


@pytest.fixture
def error_of() -> Callable[[grpc.RpcError | None], tuple[str, InfeedError]]:
    """Returns the status code of an error, and the infeed error in its details."""
    from infeed.rpc.status import error_from_details

    def read(rpc_error: Any) -> tuple[str, InfeedError]:
        assert rpc_error is not None
        details = dict(rpc_error.trailing_metadata())["grpc-status-details-bin"]
        error = error_from_details(details)
        assert error is not None
        return rpc_error.code().name, error

    return read


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds: `eventually(condition, what)`; `what` may be a function."""
    return wait_until
