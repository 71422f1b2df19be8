"""The service as a server sees it, against TensorFlow's own processes in this one."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import tensorflow as tf

from infeed.errors import ConfigError, ServerUnavailableError, SourceError
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


def wait_for_the_end(service: Service) -> None:
    while True:
        service.require()
        time.sleep(0.01)


def test_what_is_registered_can_be_read_by_jobs(dispatcher: str, worker: str) -> None:
    service = Service(dispatcher)
    service.wait_until_ready(20)
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
        with pytest.raises(ServerUnavailableError, match=f"no worker .* answers at {gone}"):
            Service(dispatcher).wait_until_ready(1)
    finally:
        worker._stop()


def test_a_server_that_takes_long_to_open_its_sources_does_not_lose_it_meanwhile(
    dispatcher: str, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(module, "GONE_SECONDS", 2.0)
    service = Service(dispatcher)
    service.wait_until_ready(20)
    service.keep_looking()
    try:
        time.sleep(2.5)
        service.require()
    finally:
        service.close()


def test_it_tells_when_the_service_goes_and_when_waiting_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(module, "GONE_SECONDS", 0.4)
    told: queue.Queue[str | None] = queue.Queue()
    server = TF.DispatchServer()
    address = server.target.partition("//")[2]
    worker = TF.WorkerServer(TF.WorkerConfig(address, worker_address="127.0.0.1:%port%"))
    service = Service(address)
    try:
        service.wait_until_ready(20)
        service.watch(told.put)
        service.keep_looking()
        service.require()
        server._stop()
        assert "no dispatcher" in (told.get(timeout=30) or "")
        with pytest.raises(SourceError, match=f"at {address} has not answered"):
            wait_for_the_end(service)
        port = int(address.rpartition(":")[2])
        server = TF.DispatchServer(TF.DispatcherConfig(port=port))
        again = TF.WorkerServer(TF.WorkerConfig(address, worker_address="127.0.0.1:%port%"))
        assert told.get(timeout=30) is None
        service.require()
        again._stop()
    finally:
        service.close()
        worker._stop()
        server._stop()
