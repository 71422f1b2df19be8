"""The bad proxy: it changes nothing until it is told to, and then does what it was told."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.stress.chaos.faulty_proxy import FaultyProxy
from tests.stress.chaos.servers import free_port

SENT = os.urandom(3_000_000)


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that sends to each that connects, and then waits for its end."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.sendall(SENT)
                    connection.recv(1)
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.fixture
def proxy(port: int) -> Iterator[FaultyProxy]:
    with FaultyProxy(port) as started:
        yield started


def connect(proxy: FaultyProxy) -> socket.socket:
    host, port = proxy.address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def receive(connection: socket.socket, count: int, received: bytearray | None = None) -> bytes:
    """So many bytes, or those to the end. `received` holds them also when the end is a bad one."""
    received = bytearray() if received is None else received
    while len(received) < count and (data := connection.recv(1 << 20)):
        received += data
    return bytes(received)


def test_it_changes_nothing(proxy: FaultyProxy) -> None:
    with connect(proxy) as connection:
        assert receive(connection, len(SENT)) == SENT


def test_a_stall_ends(proxy: FaultyProxy) -> None:
    proxy.stall(0.5)
    begin = time.monotonic()
    with connect(proxy) as connection:
        assert receive(connection, len(SENT)) == SENT
    assert time.monotonic() - begin >= 0.5


def test_a_reset_comes_in_the_middle_and_once(proxy: FaultyProxy) -> None:
    proxy.reset(1_000_000)
    with connect(proxy) as connection:
        received = bytearray()
        with pytest.raises(ConnectionResetError):
            receive(connection, len(SENT), received)
        assert len(received) <= 1_000_000
        assert SENT.startswith(bytes(received))
    assert proxy.resets == 1
    with connect(proxy) as connection:
        assert receive(connection, len(SENT)) == SENT


def test_where_nobody_listens_a_connection_ends_at_once() -> None:
    with (
        FaultyProxy(free_port()) as proxy,
        connect(proxy) as connection,
        contextlib.suppress(ConnectionResetError),
    ):
        assert connection.recv(1) == b""


def test_its_end_is_that_of_its_connections(port: int) -> None:
    proxy = FaultyProxy(port)
    with connect(proxy) as connection:
        assert receive(connection, 1)
        proxy.close()
        with pytest.raises(ConnectionResetError):
            receive(connection, len(SENT))
