"""A gRPC server over an engine that answers when told to, and a peer that sends anything."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from tests.harness.waiting import wait_until

from infeed.errors import InfeedError
from infeed.spec import FieldSpec, Guarantee, PipelineSpec
from infeed.v1 import stream_pb2
from infeed_server.control.metrics import Metrics
from infeed_server.engines.base import Answer, HostBatch, Request, Trainer
from infeed_server.rpc.server import RpcServer
from infeed_server.service.catalog import Catalog

SLOTS = 4


class HeldSession:
    """A stream of a `HeldEngine`: what it asked for, and what is still owed."""

    def __init__(self, engine: HeldEngine) -> None:
        self._engine = engine
        self.requests: list[Request] = []
        self.closed = False

    def submit(self, request: Request) -> Future[Answer]:
        assert not self.closed
        self.requests.append(request)
        future: Future[Answer] = Future()
        self._engine.take(self, request, future)
        return future

    def weigh(self, size: int) -> None:
        self._engine.weighed = size

    def sent(self) -> None:
        self._engine.sent += 1

    def close(self) -> None:
        self.closed = True
        self._engine.drop(self)


class HeldEngine:
    """Answers at once, or while `held` only later: when `release` is called."""

    def __init__(self, name: str) -> None:
        field = (FieldSpec("x", "int64"),)
        self.spec = PipelineSpec(
            name, field, field, (), 1 << 40, "f" * 32, Guarantee(), SLOTS, 7, "drop", "raise"
        )
        self.held = False
        self.error: Exception | None = None
        self.sent = 0
        self.weighed = 0
        self.made: list[weakref.ref[Any]] = []
        """The arrays of its batches, those that somebody holds still."""
        self.sessions: list[HeldSession] = []
        self._owed: list[tuple[HeldSession, Request, Future[Answer]]] = []
        self._lock = threading.Lock()

    def open(self, slots: int, epochs: int, trainer: Trainer) -> HeldSession:
        session = HeldSession(self)
        self.sessions.append(session)
        return session

    def take(self, session: HeldSession, request: Request, future: Future[Answer]) -> None:
        with self._lock:
            self._owed.append((session, request, future))
        if not self.held:
            self.release()

    def release(self) -> None:
        with self._lock:
            owed, self._owed = self._owed, []
        for _, request, future in owed:
            if not future.set_running_or_notify_cancel():
                continue
            if self.error is not None:
                future.set_exception(self.error)
                continue
            ids = np.arange(request.start, request.start + request.slots)
            mask = np.arange(request.slots) < request.count
            self.made.append(weakref.ref(ids))
            future.set_result(HostBatch(request.start, 0, {"x": ids}, ids, mask))

    def drop(self, session: HeldSession) -> None:
        with self._lock:
            dropped = [future for owner, _, future in self._owed if owner is session]
            self._owed = [owed for owed in self._owed if owed[0] is not session]
        for future in dropped:
            future.cancel()

    def warm(self) -> None: ...

    def queued_requests(self) -> int:
        with self._lock:
            return len(self._owed)

    def unsent_batches(self) -> int:
        return 0

    def unsent_bytes(self) -> int:
        return 0

    def window_bytes(self) -> int:
        return 0

    def close(self) -> None: ...


class Peer:
    """One StreamBatches call that sends what it is told to: messages or mere bytes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._sending: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        method: Any = channel.stream_stream("/infeed.v1.FeedService/StreamBatches")
        self.call = method(iter(self._sending.get, None), timeout=120)

    def send(self, *messages: bytes | stream_pb2.StreamBatchesRequest) -> Peer:
        for message in messages:
            raw = message if isinstance(message, bytes) else message.SerializeToString()
            self._sending.put(raw)
        return self

    def open(self, pipeline: str = "held", **options: Any) -> Peer:
        event = stream_pb2.StreamOpen(pipeline=pipeline, **options)
        return self.send(stream_pb2.StreamBatchesRequest(open=event))

    def ask(self, start: int, count: int = SLOTS, request_id: int = 0, **more: int) -> Peer:
        event = stream_pb2.BatchRequest(request_id=request_id, start=start, count=count, **more)
        return self.send(stream_pb2.StreamBatchesRequest(batch=event))

    def half_close(self) -> Peer:
        self._sending.put(None)
        return self

    def next(self) -> stream_pb2.StreamBatchesResponse:
        """The next answer that is no heartbeat."""
        for message in self.call:
            answer = stream_pb2.StreamBatchesResponse.FromString(message)
            if not answer.HasField("heartbeat"):
                return answer
        raise StopIteration

    def rest(self) -> tuple[list[stream_pb2.StreamBatchesResponse], grpc.RpcError | None]:
        """All answers to the end, and the error that it is, if it is one."""
        answers = []
        try:
            while True:
                answers.append(self.next())
        except StopIteration:
            return answers, None
        except grpc.RpcError as error:
            return answers, error
        finally:
            self.half_close()

    def cancel(self) -> None:
        self.call.cancel()
        self.half_close()


@dataclass
class Live:
    """A server that listens, its pipelines `held` and `other`, and what it counts."""

    server: RpcServer
    held: HeldEngine
    metrics: Metrics

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def gauge(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"infeed_{name}", {"pipeline": "held"})


@pytest.fixture
def start() -> Iterator[Callable[..., Live]]:
    """Starts servers: `start(tls=..., access=...)`, and whatever else an `RpcServer` takes."""
    started: list[Live] = []

    def make(**options: Any) -> Live:
        held = HeldEngine("held")
        metrics = Metrics("1", "2")
        metrics.add_pipeline("held")
        metrics.watch("held", held)
        catalog = Catalog({"held": held, "other": HeldEngine("other")})
        server = RpcServer(catalog, metrics, "127.0.0.1:0", **options)
        server.set_serving(True)
        server.start()
        started.append(Live(server, held, metrics))
        return started[-1]

    yield make
    for each in started:
        each.server.stop(0)


@pytest.fixture
def live(start: Callable[..., Live]) -> Live:
    return start()


@pytest.fixture
def channel(live: Live) -> Iterator[grpc.Channel]:
    """As any peer would open it."""
    with grpc.insecure_channel(live.address) as channel:
        yield channel


@pytest.fixture
def peers() -> Iterator[Callable[[grpc.Channel], Peer]]:
    """Opens calls on a channel; all are over after the test."""
    calls: list[Peer] = []

    def call(channel: grpc.Channel) -> Peer:
        calls.append(Peer(channel))
        return calls[-1]

    yield call
    for each in calls:
        each.cancel()


@pytest.fixture
def peer(channel: grpc.Channel, peers: Callable[[grpc.Channel], Peer]) -> Callable[[], Peer]:
    """Opens calls on the server `live`."""
    return lambda: peers(channel)


@pytest.fixture
def refusal() -> Callable[[grpc.RpcError | None], tuple[str, InfeedError]]:
    """The status code of an error, and the infeed error that it carries."""
    from infeed.status import error_from_details

    def read(error: Any) -> tuple[str, InfeedError]:
        assert error is not None
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        told = error_from_details(details)
        assert told is not None
        return error.code().name, told

    return read


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds, `eventually(condition, what)`; `what` may be a function."""
    return wait_until
