"""Tests of the traffic counter of a worker."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
import tensorflow as tf

from infeed_server.data_service.dispatcher.role import DispatcherRole
from infeed_server.data_service.worker import traffic as module
from infeed_server.data_service.worker.role import WorkerRole
from infeed_server.data_service.worker.traffic import TrafficCounter


def test_bytes_are_counted_over_all_connections() -> None:
    now = [0.0]
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        counter = TrafficCounter(server.getsockname()[1], lambda: now[0])
        counter.run_once()
        assert (counter.sent_bytes, counter.connections) == (0, 0)
        sent = 0
        for _ in range(3):
            with (
                closing(socket.create_connection(server.getsockname())) as client,
                closing(server.accept()[0]) as accepted,
            ):
                for size in (100_000, 50):
                    now[0] += 10
                    accepted.sendall(bytes(size))
                    assert len(client.recv(size, socket.MSG_WAITALL)) == size
                    sent += size
                    while (
                        counter.sent_bytes < sent
                    ):  # data may be received and not yet acknowledged
                        counter.run_once()
                    assert (counter.sent_bytes, counter.connections) == (sent, 1)
                assert counter.idle_seconds == 10  # an answer to a probe counts as idle
            counter.run_once()
            assert (counter.sent_bytes, counter.connections) == (sent, 0)


def test_reused_inode_is_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([5000, 6000, 300])
    monkeypatch.setattr(module, "_acknowledged_bytes", lambda connection: next(counts))
    with socket.socket() as connection:
        monkeypatch.setattr(module, "process_sockets", lambda port, listening: [connection])
        counter = TrafficCounter(1)
        for total in (5000, 6000, 6300):
            counter.run_once()
            assert counter.sent_bytes == total


def test_bytes_sent_to_tensorflow_are_counted(
    dispatcher: DispatcherRole, worker: Callable[..., WorkerRole]
) -> None:
    role = worker()
    counter = TrafficCounter(role.port)
    numbers = np.arange(1 << 18, dtype=np.int32)
    service = tf.data.experimental.service.distribute(
        "parallel_epochs",
        f"grpc://{dispatcher.address}",
        compression=None,
        data_transfer_protocol="grpc",  # within one process TensorFlow would not use TCP
    )
    read = tf.data.Dataset.range(20).map(lambda n: numbers + tf.cast(n, tf.int32)).apply(service)
    counter.run_once()
    count = 0
    for _ in read:
        count += 1
        counter.run_once()
    counter.run_once()
    assert 1 <= counter.sent_bytes / (count * numbers.nbytes) < 1.1
    assert counter.connections >= 1
