"""Tests of the service client, with TensorFlow's dispatcher and workers in this process."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import tensorflow as tf
from tests.harness.clock import ManualClock
from tests.harness.waiting import wait_until

from infeed.shared.errors import (
    ServerUnavailableError,
    SourceError,
)
from infeed.v1 import cluster_pb2 as messages
from infeed_service.gateway import client as module
from infeed_service.gateway.client import DataServiceClient
from infeed_service.rpc import DispatcherClient

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
        wait_until(lambda: self.checks >= before + 2, "the client has found it")


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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READY_TIMEOUT_SECONDS", 0.1)


def test_data_set_is_made_once_unless_the_dispatcher_lost_it(dispatcher: str, worker: str) -> None:
    client = DataServiceClient(dispatcher)
    made = []

    def make() -> tf.data.Dataset:
        made.append(1)
        return numbers()

    client.register("numbers", "none", make)
    client.register("numbers", "none", make)
    assert len(made) == 1
    client.register("others", "none", make)
    assert len(made) == 2


@pytest.mark.usefixtures("impatient")
def test_unreachable_dispatcher_is_an_error(new_address: Callable[[], str]) -> None:
    unused = new_address()
    client = DataServiceClient(unused)
    with pytest.raises(
        ServerUnavailableError, match=f"not ready after 0.1 s: no dispatcher .*{unused}"
    ) as caught:
        client.start()
    assert caught.value.metadata == {"target": unused}
    with pytest.raises(ServerUnavailableError, match="no dispatcher"):
        client.register("numbers", "none", numbers)


@pytest.mark.usefixtures("impatient")
def test_dispatcher_without_workers_is_not_ready(dispatcher: str) -> None:
    with pytest.raises(ServerUnavailableError, match=f"infeed worker --dispatcher {dispatcher}"):
        DataServiceClient(dispatcher).start()


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
    wait_until(lambda: client._find_problem() is None, "the client has found it")
    assert client.lost_workers == (unused,)
    assert client.answering_workers == 1


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
        client.start()
        server._stop()
        wait_until(lambda: client._problem, "the client has found it")
        clock.wait_for_check()
        assert not any(drain(reports)), "no time has passed"
        clock.now = module.UNAVAILABLE_TIMEOUT_SECONDS
        assert "no dispatcher" in (reports.get(timeout=100) or "")
        client.require()
        clock.now = module.LOST_TIMEOUT_SECONDS
        with pytest.raises(SourceError, match=f"{address} has not answered for 120 s") as caught:
            client.require()
        assert caught.value.metadata == {"target": address}
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
