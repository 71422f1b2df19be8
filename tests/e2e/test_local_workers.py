"""Worker processes of this machine: they end with their parent, and come back where they were."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf

from infeed.errors import ServerError
from infeed.inquiry import Dispatcher, unreachable
from infeed_server.cluster.dispatcher import DispatcherRole
from infeed_server.config.address import Address
from infeed_server.runtime import fleet, local_workers
from infeed_server.runtime.local_workers import LocalWorkers


@pytest.fixture
def dispatcher() -> Iterator[str]:
    role = DispatcherRole(Address("127.0.0.1", 0))
    role.start()
    yield role.address
    role.stop()


def waits(seconds: float) -> Callable[[float], bool]:
    """A `stopped` that gives up after so many seconds."""
    deadline = time.monotonic() + seconds

    def stopped(pause: float) -> bool:
        time.sleep(pause)
        return time.monotonic() > deadline

    return stopped


def pids(workers: LocalWorkers) -> list[int]:
    return [each._process.pid for each in workers._workers]


def tend_until(workers: LocalWorkers, condition: Callable[[], bool]) -> None:
    stopped = waits(200)
    while not condition():
        assert not stopped(0.05)
        workers.tend()


@pytest.mark.slow
def test_they_come_back_where_they_were(
    dispatcher: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fleet, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(local_workers, "ASK_SECONDS", 1.0)
    workers = LocalWorkers(2, dispatcher)
    try:
        workers.begin(waits(200))
        addresses = workers.addresses()
        assert Dispatcher(dispatcher).workers() == sorted(addresses)
        ended, hung = pids(workers)
        os.kill(ended, signal.SIGKILL)
        os.kill(hung, signal.SIGSTOP)
        tend_until(workers, lambda: ended not in pids(workers))
        assert "worker 0 ended with status -9; starting it again" in caplog.text
        monkeypatch.setattr(local_workers, "HUNG_SECONDS", 2.0)
        tend_until(workers, lambda: hung not in pids(workers))
        assert f"worker 1 at {addresses[1]} has not answered for" in caplog.text
        monkeypatch.undo()
        tend_until(workers, lambda: all(workers.http_addresses()))
        assert workers.addresses() == addresses
        assert unreachable([str(each) for each in addresses]) == {}
        service = tf.data.experimental.service.distribute("parallel_epochs", f"grpc://{dispatcher}")
        found = tf.data.Dataset.range(2).apply(service).as_numpy_iterator()
        assert sorted(int(each) for each in found) == [0, 0, 1, 1]
        for address in workers.http_addresses():
            connection = http.client.HTTPConnection(str(address), timeout=100)
            connection.request("GET", "/readyz")
            assert connection.getresponse().status == 200
            connection.close()
    finally:
        last = list(workers._workers)
        workers.end(100)
    assert [each.status for each in last] == [0, 0]


def test_one_that_cannot_start(dispatcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = LocalWorkers(1, "not an address")
    with pytest.raises(ServerError, match="worker 0 ended with status 1"):
        workers.begin(waits(200))
    workers.end(100)


def test_they_end_with_their_parent(dispatcher: str) -> None:
    workers = LocalWorkers(1, dispatcher)
    workers.begin(waits(200))
    [worker] = workers._workers
    worker._process.stdin.close()  # as the kernel does when the parent dies
    # 1 is that of the watchdog, where a machine is too slow for TensorFlow to end in good order.
    assert worker._process.wait(100) in (0, 1)
    workers.end(1)
