"""Questions to the processes of TensorFlow's data service: real ones, and what is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
import tensorflow as tf
from tests.client.waiting import HANG_SECONDS, until

from infeed.errors import ProtocolError, ServerUnavailableError
from infeed.inquiry import Dispatcher, unreachable, worker_tasks

SERVICE = tf.data.experimental.service


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[str]:
    server = SERVICE.DispatchServer()
    yield server.target.partition("//")[2]
    server._stop()


@pytest.fixture(scope="module")
def worker(dispatcher: str) -> Iterator[str]:
    server = SERVICE.WorkerServer(
        SERVICE.WorkerConfig(dispatcher, worker_address="127.0.0.1:%port%")
    )
    yield server._address
    server._stop()


def nobody() -> str:
    """An address where nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_dispatcher_tells_its_version_and_its_workers(dispatcher: str, worker: str) -> None:
    asked = Dispatcher(dispatcher, HANG_SECONDS)
    assert asked.version() > 0
    until(asked.workers)
    assert asked.workers() == ["127.0.0.1:" + worker.rpartition(":")[2]]


def test_a_data_set_that_is_registered_and_one_that_is_not(dispatcher: str) -> None:
    numbers = tf.data.Dataset.range(1).map(lambda number: {"a name": number})
    SERVICE.register_dataset(f"grpc://{dispatcher}", numbers, dataset_id="numbers")
    asked = Dispatcher(dispatcher, HANG_SECONDS)
    assert b"a name" in (asked.element_spec("numbers") or b"")
    assert asked.element_spec("letters") is None


def test_a_worker_that_does_nothing_has_no_tasks(worker: str) -> None:
    assert worker_tasks(worker, HANG_SECONDS) == []
    assert unreachable([worker], HANG_SECONDS) == {}


def test_nobody_there() -> None:
    with pytest.raises(ServerUnavailableError, match="no dispatcher of TensorFlow's data service"):
        Dispatcher(nobody()).version()
    gone = nobody()
    assert "Connection refused" in unreachable([gone])[gone]


def test_somebody_else_there(dispatcher: str, worker: str) -> None:
    with pytest.raises(ProtocolError, match="is no dispatcher"):
        Dispatcher(worker, HANG_SECONDS).version()
    with pytest.raises(ProtocolError, match="is no worker"):
        worker_tasks(dispatcher, HANG_SECONDS)


def test_who_listens_and_says_nothing_is_given_up() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerUnavailableError, match="in time"):
            Dispatcher(address, timeout=0.1).version()
