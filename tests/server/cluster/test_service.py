"""The service as a server sees it, against TensorFlow's own processes in this one."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
import tensorflow as tf

from infeed.errors import ConfigError, ServerUnavailableError, SourceError
from infeed.inquiry import Dispatcher
from infeed.v1 import cluster_pb2 as messages
from infeed_server.cluster import marker
from infeed_server.cluster import service as module
from infeed_server.cluster.service import Service

TF = tf.data.experimental.service


@pytest.fixture
def dispatcher() -> Iterator[str]:
    server = TF.DispatchServer()
    yield server.target.partition("//")[2]
    server._stop()


@pytest.fixture
def worker(dispatcher: str) -> Iterator[str]:
    server = TF.WorkerServer(
        TF.WorkerConfig(dispatcher, worker_address="127.0.0.1:%port%", heartbeat_interval_ms=100)
    )
    yield server._address
    server._stop()


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(10)


def nobody() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


class Clock:
    """Seconds that a test lets pass."""

    now = 0.0
    looks = 0
    """How many times a service has begun to look."""

    def __call__(self) -> float:
        return self.now

    def await_look(self) -> None:
        """Returns when a look that began after this call has had its effect."""
        before = self.looks
        until(lambda: self.looks >= before + 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of every `Service`, which looks at its dispatcher all the time."""
    found = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=found, sleep=time.sleep))
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    look = Service._look

    def counted(service: Service) -> str | None:
        found.looks += 1
        return look(service)

    monkeypatch.setattr(Service, "_look", counted)
    return found


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_registered_can_be_read_by_jobs(dispatcher: str, worker: str) -> None:
    service = Service(dispatcher)
    service.wait_until_ready(100)
    for _ in range(2):
        service.register("numbers", "none", numbers)
    assert sorted(int(i) for i in service.read("numbers", "a")) == list(range(10))
    assert sorted(int(i) for i in service.read("numbers", "b")) == list(range(10))


def test_it_is_made_once_unless_the_dispatcher_forgot_it(dispatcher: str, worker: str) -> None:
    service = Service(dispatcher)
    made = []

    def make() -> tf.data.Dataset:
        made.append(1)
        return numbers()

    service.register("numbers", "none", make)
    service.register("numbers", "none", make)
    assert len(made) == 1
    service._known.add("forgotten")
    service.register("forgotten", "none", make)
    assert len(made) == 2


def test_what_tensorflow_does_not_take_is_told(dispatcher: str) -> None:
    Service(dispatcher).register("numbers", "none", numbers)

    def others() -> tf.data.Dataset:
        return numbers().map(tf.strings.as_string)

    with pytest.raises(ConfigError, match=f"{dispatcher} does not take it: .*numbers"):
        Service(dispatcher).register("numbers", "none", others)


def test_nobody_there() -> None:
    gone = nobody()
    service = Service(gone)
    with pytest.raises(
        ServerUnavailableError, match=f"not ready after 0.1 s: no dispatcher .*{gone}"
    ):
        service.wait_until_ready(0.1)
    with pytest.raises(ServerUnavailableError, match="no dispatcher"):
        service.register("numbers", "none", numbers)


def test_no_worker_came(dispatcher: str) -> None:
    with pytest.raises(ServerUnavailableError, match=f"infeed worker --dispatcher {dispatcher}"):
        Service(dispatcher).wait_until_ready(0.1)


def test_a_worker_that_nobody_can_reach(dispatcher: str) -> None:
    gone = nobody()
    worker = TF.WorkerServer(
        TF.WorkerConfig(dispatcher, worker_address=gone, heartbeat_interval_ms=100)
    )
    try:
        until(lambda: Dispatcher(dispatcher).workers() == [gone])
        with pytest.raises(ServerUnavailableError, match=f"no worker .* answers at {gone}"):
            Service(dispatcher).wait_until_ready(0)
    finally:
        worker._stop()


def test_one_of_several_workers_that_is_gone_is_no_problem(dispatcher: str, worker: str) -> None:
    gone = nobody()
    Dispatcher(dispatcher).ask(
        "WorkerHeartbeat",
        messages.WorkerHeartbeat(worker_address=gone),
        messages.WorkerHeartbeatAnswer,
    )
    service = Service(dispatcher)
    service.wait_until_ready(100)
    assert service.lost_workers == (gone,)
    assert service.answering_workers == 1


@pytest.mark.parametrize("there", [True, False])
def test_another_tensorflow_of_a_worker_that_is_there_is_refused(
    dispatcher: str, worker: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address,) = Dispatcher(dispatcher).workers()
    monkeypatch.setattr(tf, "__version__", "2.20.0")
    marker.leave(dispatcher, marker.worker(address))
    monkeypatch.undo()
    service = Service(dispatcher)
    if there:
        with pytest.raises(ConfigError, match=f"worker {address} runs TensorFlow 2.20.0"):
            service.register("numbers", "none", numbers)
    else:
        service.lost_workers = (address,)
        service.register("numbers", "none", numbers)


def test_a_server_that_takes_long_to_open_its_sources_does_not_lose_it_meanwhile(
    dispatcher: str, worker: str, clock: Clock
) -> None:
    service = Service(dispatcher)
    service.wait_until_ready(100)
    clock.now = module.GONE_SECONDS
    with pytest.raises(SourceError, match="has not answered for 120 s"):
        service.require()  # as of the last look
    service.keep_looking()
    try:
        clock.await_look()
        service.require()
    finally:
        service.close()
    assert not service._watcher.is_alive()


def test_the_service_is_reported_gone_after_a_while_and_back_at_once(clock: Clock) -> None:
    reports: queue.Queue[str | None] = queue.Queue()
    server = TF.DispatchServer()
    address = server.target.partition("//")[2]
    worker = TF.WorkerServer(TF.WorkerConfig(address, worker_address="127.0.0.1:%port%"))
    service = Service(address)
    try:
        service.wait_until_ready(100)
        service.watch(reports.put)
        service.keep_looking()
        server._stop()
        until(lambda: service._why)
        clock.await_look()
        assert reports.empty(), "it is silent for no time yet"
        clock.now = module.SILENT_SECONDS
        assert "no dispatcher" in (reports.get(timeout=100) or "")
        service.require()
        clock.now = module.GONE_SECONDS
        with pytest.raises(SourceError, match=f"at {address} has not answered for 120 s"):
            service.require()
        port = int(address.rpartition(":")[2])
        server = TF.DispatchServer(TF.DispatcherConfig(port=port))
        again = TF.WorkerServer(TF.WorkerConfig(address, worker_address="127.0.0.1:%port%"))
        assert reports.get(timeout=100) is None
        service.require()
        again._stop()
    finally:
        service.close()
        worker._stop()
        server._stop()


def test_a_problem_from_before_the_watch_is_reported_too(clock: Clock) -> None:
    gone = nobody()
    service = Service(gone)
    clock.now = module.SILENT_SECONDS
    service.keep_looking()
    try:
        until(lambda: service._problem)
        reports: list[str | None] = []
        service.watch(reports.append)
        assert len(reports) == 1
        assert gone in str(reports[0])
    finally:
        service.close()
