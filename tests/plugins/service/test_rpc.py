"""Dispatcher client, with TensorFlow's data service and with other processes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import tensorflow as tf
from tests.client.waiting import HANG_SECONDS, until

from infeed.shared.errors import ProtocolError, ServerUnavailableError
from infeed_service.rpc import (
    DispatcherClient,
    JournalMark,
    get_worker_tasks,
)

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


def test_version_and_workers(dispatcher: str, worker: str) -> None:
    client = DispatcherClient(dispatcher, HANG_SECONDS)
    assert client.get_version() > 0
    until(client.get_workers)
    assert client.get_workers() == ["127.0.0.1:" + worker.rpartition(":")[2]]


def test_mark_is_lost_with_the_journal(dispatcher: str, new_address: Callable[[], str]) -> None:
    mark = JournalMark(DispatcherClient(dispatcher, HANG_SECONDS))
    assert not mark.is_lost(), "it is not placed"
    mark.place()
    assert not mark.is_lost()
    other = SERVICE.DispatchServer()
    moved = DispatcherClient(other.target.partition("//")[2], HANG_SECONDS)
    mark._dispatcher = moved
    assert mark.is_lost()
    mark.place()
    assert not mark.is_lost()
    other._stop()
    mark._dispatcher = DispatcherClient(new_address())
    with pytest.raises(ServerUnavailableError):
        mark.is_lost()


def test_closed_address_is_unavailable(new_address: Callable[[], str]) -> None:
    address = new_address()
    with pytest.raises(ServerUnavailableError, match="no dispatcher of TensorFlow's data service"):
        DispatcherClient(address).get_version()
    with pytest.raises(ServerUnavailableError, match=r"no worker .*Connection refused"):
        get_worker_tasks(address)


def test_other_process_is_refused(dispatcher: str, worker: str) -> None:
    with pytest.raises(ProtocolError, match="is not a dispatcher"):
        DispatcherClient(worker, HANG_SECONDS).get_version()
    with pytest.raises(ProtocolError, match="is not a worker"):
        get_worker_tasks(dispatcher, HANG_SECONDS)


def test_silent_process_is_unavailable() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerUnavailableError, match="in time"):
            DispatcherClient(address, timeout=0.1).get_version()
