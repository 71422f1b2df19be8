"""Local worker processes: they end with their parent, and restart on their addresses."""

from __future__ import annotations

import http.client
import os
import signal
import sys
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf
from tests.harness.nursery import Nursery
from tests.harness.waiting import wait_until

from infeed.shared.errors import ServerError
from infeed_server.config.address import Address
from infeed_server.processes import supervisor
from infeed_tfdata.gateway.local_workers import LocalWorkers
from infeed_tfdata.options import DispatcherOptions
from infeed_tfdata.roles.dispatcher import DispatcherRole
from infeed_tfdata.rpc import DispatcherClient, probe_workers

LOCAL = Address("127.0.0.1", 0)


@pytest.fixture
def dispatcher() -> Iterator[str]:
    role = DispatcherRole(DispatcherOptions(listen="127.0.0.1:0"))
    role.start()
    yield role.address
    role.stop()


@pytest.fixture
def forked_workers(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts workers in interpreters that have loaded TensorFlow."""
    monkeypatch.setattr(sys, "executable", str(nursery.python))


def pids(workers: LocalWorkers) -> list[int]:
    return [worker._process.pid for worker in workers._group.processes]


def addresses_of(workers: LocalWorkers) -> list[str | None]:
    return [worker.address for worker in workers._group.processes]


def restart_until(workers: LocalWorkers, condition: Callable[[], bool], what: str) -> None:
    def is_met() -> bool:
        workers.restart_failed()
        return condition()

    wait_until(is_met, what, interval=0.05)


@pytest.mark.slow
def test_workers_restart_on_their_addresses(
    dispatcher: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "MAX_BACKOFF_SECONDS", 0.1)
    workers = LocalWorkers(dispatcher, [LOCAL] * 2)
    try:
        workers.start()
        addresses = addresses_of(workers)
        assert DispatcherClient(dispatcher).get_workers() == sorted(addresses)
        exited, hung = pids(workers)
        os.kill(exited, signal.SIGKILL)
        os.kill(hung, signal.SIGSTOP)
        restart_until(workers, lambda: exited not in pids(workers), "the exited worker restarts")
        assert "worker 0 ended with status -9; restarting it" in caplog.text
        workers.restart_failed([str(addresses[1])])
        restart_until(workers, lambda: hung not in pids(workers), "the hung worker restarts")
        assert f"worker 1 at {addresses[1]} hangs and is killed" in caplog.text
        monkeypatch.undo()
        restart_until(workers, lambda: all(workers._group.http_addresses()), "all workers serve")
        assert addresses_of(workers) == addresses
        results = probe_workers([str(address) for address in addresses])
        assert all(isinstance(tasks, int) for tasks in results.values())
        service = tf.data.experimental.service.distribute("parallel_epochs", f"grpc://{dispatcher}")
        elements = tf.data.Dataset.range(2).apply(service).as_numpy_iterator()
        assert sorted(int(element) for element in elements) == [0, 0, 1, 1]
        for address in workers._group.http_addresses():
            connection = http.client.HTTPConnection(str(address), timeout=100)
            connection.request("GET", "/readyz")
            assert connection.getresponse().status == 200
            connection.close()
    finally:
        processes = list(workers._group.processes)
        workers.stop(100)
    assert [process.status for process in processes] == [0, 0]


@pytest.mark.usefixtures("forked_workers")
def test_worker_that_exits_at_start_is_an_error() -> None:
    workers = LocalWorkers("not an address", [LOCAL])
    with pytest.raises(ServerError, match="worker 0 ended with status 1"):
        workers.start()
    workers.stop(100)


@pytest.mark.usefixtures("forked_workers")
def test_worker_exits_with_its_parent(dispatcher: str) -> None:
    workers = LocalWorkers(dispatcher, [LOCAL])
    workers.start()
    [worker] = workers._group.processes
    worker._process.stdin.close()  # as the kernel does at the end of the parent
    # 1 comes from the exit timeout, on a machine that is too slow for a graceful shutdown.
    assert worker._process.wait(100) in (0, 1)
    workers.stop(1)
