"""What was sent from a port, as the kernel counts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from infeed_server.cluster import served as module
from infeed_server.cluster.dispatcher import DispatcherRole
from infeed_server.cluster.served import Served
from infeed_server.cluster.worker import WorkerRole


def test_connections_that_come_and_go() -> None:
    now = [0.0]
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        served = Served(server.getsockname()[1], lambda: now[0])
        served.look()
        assert (served.bytes, served.connections) == (0, 0)
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
                    while served.bytes < sent:  # received is not yet acknowledged
                        served.look()
                    assert (served.bytes, served.connections) == (sent, 1)
                assert served.idle_seconds == 10  # an answer to a question is no work
            served.look()
            assert (served.bytes, served.connections) == (sent, 0)


def test_an_inode_that_counts_less_is_a_later_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([5000, 6000, 300])
    found = SimpleNamespace(inode=7, listens=False, socket=None)
    monkeypatch.setattr(module, "owned", lambda port: [found])
    monkeypatch.setattr(module, "_acked", lambda connection: next(counts))
    served = Served(1)
    for total in (5000, 6000, 6300):
        served.look()
        assert served.bytes == total


def test_what_a_worker_sends_to_tensorflow(
    dispatcher: DispatcherRole, worker: Callable[..., WorkerRole]
) -> None:
    role = worker()
    served = Served(role.port)
    numbers = np.arange(1 << 18, dtype=np.int32)
    service = tf.data.experimental.service.distribute(
        "parallel_epochs",
        f"grpc://{dispatcher.address}",
        compression=None,
        data_transfer_protocol="grpc",  # or, in one process, TensorFlow would spare itself TCP
    )
    read = tf.data.Dataset.range(20).map(lambda n: numbers + tf.cast(n, tf.int32)).apply(service)
    served.look()
    count = 0
    for _ in read:
        count += 1
        served.look()
    served.look()
    assert 1 <= served.bytes / (count * numbers.nbytes) < 1.1
    assert served.connections >= 1
