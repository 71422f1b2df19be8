"""Faulty proxy: stalled, then transparent; reset within a stream, once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from tests.harness.clock import ManualClock
from tests.harness.listener import Listener
from tests.harness.waiting import wait_until
from tests.stress.chaos.faulty_proxy import FaultyProxy

SENT = os.urandom(3_000_000)


class CountedClock(ManualClock):
    """Counts its reads."""

    reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return super().__call__()


def send_and_wait_for_close(connection: socket.socket) -> None:
    connection.sendall(SENT)
    connection.recv(1)


@pytest.fixture
def port() -> Iterator[int]:
    with Listener(send_and_wait_for_close) as server:
        yield int(server.address.rpartition(":")[2])


def connect(proxy: FaultyProxy) -> socket.socket:
    host, port = proxy.address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def receive(connection: socket.socket, count: int, received: bytearray | None = None) -> bytes:
    """Returns `count` bytes, or those up to the end. `received` keeps them after an error, too."""
    received = bytearray() if received is None else received
    while len(received) < count and (data := connection.recv(1 << 20)):
        received += data
    return bytes(received)


def test_stalled_proxy_forwards_nothing_until_the_stall_ends(port: int) -> None:
    clock = CountedClock()
    with FaultyProxy(port, clock) as proxy:
        proxy.stall(0.5)
        with connect(proxy) as connection:
            wait_until(lambda: clock.reads > 3, "the connection waits for the stall's end")
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.recv(1)
            connection.settimeout(60)
            clock.now = 0.5
            assert receive(connection, len(SENT)) == SENT


def test_reset_occurs_once_within_the_stream(port: int) -> None:
    clock = CountedClock()
    with FaultyProxy(port, clock) as proxy:
        proxy.reset(1_000_000)
        proxy.stall(1)
        with connect(proxy) as connection:
            clock.now = 1  # after connecting, because buffers hold more than a million bytes
            received = bytearray()
            with pytest.raises(ConnectionResetError):
                receive(connection, len(SENT), received)
            assert len(received) <= 1_000_000
            assert SENT.startswith(bytes(received))
        assert proxy.resets == 1
        with connect(proxy) as connection:
            assert receive(connection, len(SENT)) == SENT
