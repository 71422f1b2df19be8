"""The bad link: it changes nothing until it is told to, and then does what it was told."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.chaos.link import Link
from tests.chaos.servers import free_port

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
def link(port: int) -> Iterator[Link]:
    with Link(port) as started:
        yield started


def connect(link: Link) -> socket.socket:
    host, port = link.address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def receive(connection: socket.socket, count: int, received: bytearray | None = None) -> bytes:
    """So many bytes, or those to the end. `received` holds them also when the end is a bad one."""
    received = bytearray() if received is None else received
    while len(received) < count and (data := connection.recv(1 << 20)):
        received += data
    return bytes(received)


def test_it_changes_nothing(link: Link) -> None:
    with connect(link) as connection:
        assert receive(connection, len(SENT)) == SENT


def test_a_stall_ends(link: Link) -> None:
    link.stall(0.5)
    begin = time.monotonic()
    with connect(link) as connection:
        assert receive(connection, len(SENT)) == SENT
    assert time.monotonic() - begin >= 0.5


def test_a_reset_comes_in_the_middle_and_once(link: Link) -> None:
    link.reset(1_000_000)
    with connect(link) as connection:
        received = bytearray()
        with pytest.raises(ConnectionResetError):
            receive(connection, len(SENT), received)
        assert len(received) <= 1_000_000
        assert SENT.startswith(bytes(received))
    assert link.resets == 1
    with connect(link) as connection:
        assert receive(connection, len(SENT)) == SENT


def test_where_nobody_listens_a_connection_ends_at_once() -> None:
    with (
        Link(free_port()) as link,
        connect(link) as connection,
        contextlib.suppress(ConnectionResetError),
    ):
        assert connection.recv(1) == b""


def test_its_end_is_that_of_its_connections(port: int) -> None:
    link = Link(port)
    with connect(link) as connection:
        assert receive(connection, 1)
        link.close()
        with pytest.raises(ConnectionResetError):
            receive(connection, len(SENT))
