"""The delaying proxy: bytes, ends of streams, and its own end."""

from __future__ import annotations

import multiprocessing
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.client.waiting import HANG_SECONDS

from infeed.loadtest import delay

pytestmark = pytest.mark.skipif(not delay.IS_SUPPORTED, reason="needs splice")


@pytest.fixture(params=["127.0.0.1:0", "unix"])
def echo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a server that returns what it gets, to the end of the stream."""
    if request.param == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        address = f"unix:{tmp_path / 's'}"
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield address
    thread.join(HANG_SECONDS)
    listener.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("jitter", [0.0, 0.005])
def test_bytes_arrive_in_order_until_the_end(echo: str, jitter: float) -> None:
    sent = bytes(range(256)) * 2000
    ours, theirs = multiprocessing.Pipe()
    thread = threading.Thread(target=delay.serve, args=(echo, 0.001, jitter, theirs))
    thread.start()
    with socket.create_connection(("127.0.0.1", ours.recv()), HANG_SECONDS) as client:

        def send() -> None:
            for begin in range(0, len(sent), 10_000):
                client.sendall(sent[begin : begin + 10_000])
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        received = b"".join(iter(lambda: client.recv(65536), b""))
        sender.join()
    assert received == sent
    ours.close()  # as when the load test ends
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()


def test_a_server_that_is_away_closes_the_connection(new_address: Callable[[], str]) -> None:
    address = new_address()
    ours, theirs = multiprocessing.Pipe()
    thread = threading.Thread(target=delay.serve, args=(address, 0.0, 0.0, theirs))
    thread.start()
    with socket.create_connection(("127.0.0.1", ours.recv()), HANG_SECONDS) as client:
        assert client.recv(1) == b""
    ours.close()
    thread.join(HANG_SECONDS)
