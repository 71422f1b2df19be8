"""Tests of the service client, with TensorFlow's dispatcher and workers in this process."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.clock import ManualClock

from infeed.shared.errors import ConfigError, ServerError, ServerUnavailableError, SourceError
from infeed.v1 import cluster_pb2 as messages
from infeed_tfdata.gateway import client as module
from infeed_tfdata.gateway.client import DataServiceClient
from infeed_tfdata.gateway.read_watch import ReadWatch
from infeed_tfdata.rpc import DispatcherClient

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


class Clock(ManualClock):
    """Counts the checks that have begun."""

    checks = 0

    def wait_for_check(self) -> None:
        """Waits until a check that began after this call has ended."""
        before = self.checks
        until(lambda: self.checks >= before + 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of every `DataServiceClient`, which checks its dispatcher all the time."""
    fake = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=fake, sleep=time.sleep))
    monkeypatch.setattr(module, "CHECK_INTERVAL_SECONDS", 0.01)
    find_problem = DataServiceClient._find_problem

    def counted(client: DataServiceClient) -> str | None:
        fake.checks += 1
        return find_problem(client)

    monkeypatch.setattr(DataServiceClient, "_find_problem", counted)
    return fake


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_data_set_is_made_once_unless_the_dispatcher_lost_it(dispatcher: str, worker: str) -> None:
    client = DataServiceClient(dispatcher)
    made = []

    def make() -> tf.data.Dataset:
        made.append(1)
        return numbers()

    client.register("numbers", "none", make)
    client.register("numbers", "none", make)
    assert len(made) == 1
    client._registrations.add("lost", "", 0)
    client.register("lost", "none", make)
    assert len(made) == 2


def test_data_set_that_tensorflow_rejects_is_an_error(dispatcher: str) -> None:
    DataServiceClient(dispatcher).register("numbers", "none", numbers)

    def others() -> tf.data.Dataset:
        return numbers().map(tf.strings.as_string)

    with pytest.raises(ConfigError, match=f"{dispatcher} rejects the data set: .*numbers"):
        DataServiceClient(dispatcher).register("numbers", "none", others)


def test_full_disk_of_the_dispatcher_is_an_error_of_the_server(
    dispatcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **options: object) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "journal_0; No space left on device")

    monkeypatch.setattr(TF, "register_dataset", fail)
    client = DataServiceClient(dispatcher)
    with pytest.raises(ServerError, match=r"cannot store the data set: .*No space left on device"):
        client.register("numbers", "none", numbers)
    monkeypatch.undo()
    client.register("numbers", "none", numbers)


def test_problem_of_the_own_dispatcher_makes_the_service_unavailable(
    dispatcher: str, worker: str
) -> None:
    problems = ["the work directory is full", None]
    client = DataServiceClient(dispatcher, find_own_problem=lambda: problems[0])
    with pytest.raises(ServerUnavailableError, match="the work directory is full"):
        client.start(0)
    problems.pop(0)
    until(lambda: client._find_problem() is None)


def test_unreachable_dispatcher_is_an_error(new_address: Callable[[], str]) -> None:
    unused = new_address()
    client = DataServiceClient(unused)
    with pytest.raises(
        ServerUnavailableError, match=f"not ready after 0.1 s: no dispatcher .*{unused}"
    ):
        client.start(0.1)
    with pytest.raises(ServerUnavailableError, match="no dispatcher"):
        client.register("numbers", "none", numbers)


def test_dispatcher_without_workers_is_not_ready(dispatcher: str) -> None:
    with pytest.raises(ServerUnavailableError, match=f"infeed worker --dispatcher {dispatcher}"):
        DataServiceClient(dispatcher).start(0.1)


def test_unreachable_worker_is_not_ready(dispatcher: str, new_address: Callable[[], str]) -> None:
    unused = new_address()
    worker = TF.WorkerServer(
        TF.WorkerConfig(dispatcher, worker_address=unused, heartbeat_interval_ms=100)
    )
    try:
        until(lambda: DispatcherClient(dispatcher).get_workers() == [unused])
        with pytest.raises(ServerUnavailableError, match=f"no worker .* answers at {unused}"):
            DataServiceClient(dispatcher).start(0)
    finally:
        worker._stop()


def test_one_answering_worker_is_ready(
    dispatcher: str, worker: str, new_address: Callable[[], str]
) -> None:
    unused = new_address()
    DispatcherClient(dispatcher).call(
        "WorkerHeartbeat",
        messages.WorkerHeartbeat(worker_address=unused),
        messages.WorkerHeartbeatAnswer,
    )
    client = DataServiceClient(dispatcher)
    until(lambda: client._find_problem() is None)
    assert client.lost_workers == (unused,)
    assert client.answering_workers == 1


def test_service_is_not_lost_while_sources_open(dispatcher: str, worker: str, clock: Clock) -> None:
    client = DataServiceClient(dispatcher)
    client._find_problem()
    clock.now = module.LOST_TIMEOUT_SECONDS
    with pytest.raises(SourceError, match="has not answered for 120 s"):
        client.require()  # as of the last check
    client.start(100)
    try:
        clock.wait_for_check()
        client.require()
    finally:
        client.close()
    assert not client._checks._thread.is_alive()


def drain(reports: queue.Queue[str | None]) -> list[str | None]:
    return [reports.get() for _ in range(reports.qsize())]


def test_outage_is_reported_late_and_its_end_at_once(
    clock: Clock, new_address: Callable[[], str]
) -> None:
    reports: queue.Queue[str | None] = queue.Queue()
    address = new_address()
    options = TF.DispatcherConfig(port=int(address.rpartition(":")[2]))
    server = TF.DispatchServer(options)
    worker = TF.WorkerServer(TF.WorkerConfig(address, worker_address="127.0.0.1:%port%"))
    client = DataServiceClient(address)
    try:
        client.watch(reports.put)
        client.start(100)
        server._stop()
        until(lambda: client._problem)
        clock.wait_for_check()
        assert not any(drain(reports)), "no time has passed"
        clock.now = module.UNAVAILABLE_TIMEOUT_SECONDS
        assert "no dispatcher" in (reports.get(timeout=100) or "")
        client.require()
        clock.now = module.LOST_TIMEOUT_SECONDS
        with pytest.raises(SourceError, match=f"at {address} has not answered for 120 s"):
            client.require()
        server = TF.DispatchServer(options)
        again = TF.WorkerServer(TF.WorkerConfig(address, worker_address="127.0.0.1:%port%"))
        while reports.get(timeout=100):
            pass
        client.require()
        again._stop()
    finally:
        client.close()
        worker._stop()
        server._stop()


class FakeClient:
    """A client whose dispatcher and workers a test changes."""

    address = "10.0.0.1:7472"
    lost_journals = 0

    def __init__(self) -> None:
        self.silent: dict[str, float] = {}

    @property
    def lost_workers(self) -> tuple[str, ...]:
        return tuple(self.silent)

    def lost_for(self, seconds: float) -> tuple[str, ...]:
        return tuple(worker for worker, age in self.silent.items() if age >= seconds)

    def require(self) -> None:
        pass


def test_read_ends_when_the_dispatcher_lost_its_journal() -> None:
    client: Any = FakeClient()
    watch = ReadWatch(client, "photos")
    watch.require_job()
    client.lost_journals = 1
    for check in (watch.require_job, lambda: watch.on_wait(0.5)):
        with pytest.raises(SourceError, match=r"'photos' was lost: .*10\.0\.0\.1:7472 .* journal"):
            check()
    ReadWatch(client, "photos").require_job()


def test_wait_for_a_lost_worker_ends() -> None:
    client: Any = FakeClient()
    watch = ReadWatch(client, "photos")
    watch.on_wait(10_000)  # a slow batch
    client.silent = {"10.0.0.2:7473": 119.0}
    ReadWatch(client, "photos").on_wait(10_000)  # it was lost before
    watch.on_wait(500)  # it was lost only now: its tasks may still end
    client.silent = {"10.0.0.2:7473": 120.0}
    with pytest.raises(SourceError, match=r"no batch of 'photos' for 500 s, .*: 10\.0\.0\.2:7473"):
        watch.on_wait(500)


def test_lost_journal_is_counted_once(dispatcher: str, worker: str) -> None:
    client = DataServiceClient(dispatcher)
    client.start(100)
    client.close()
    client.check_journal()
    assert client.lost_journals == 0
    client._mark._id = "of another journal"
    client.check_journal()
    client.check_journal()
    assert client.lost_journals == 1
