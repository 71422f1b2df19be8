"""The delaying proxy: bytes, ends of streams, and its own end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.client.waiting import HANG_SECONDS

from infeed.loadtest import workers


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


@contextmanager
def connected(server: str, rtt_ms: float, jitter_ms: float = 0.0) -> Iterator[socket.socket]:
    """Connects to a server through a proxy."""
    with workers.route(server, {}, rtt_ms, jitter_ms) as (path, _):
        host, _, port = path.partition(":")
        with socket.create_connection((host, int(port)), HANG_SECONDS) as client:
            yield client


@pytest.mark.parametrize("jitter", [0, 10])
def test_bytes_arrive_late_and_in_order_until_the_end(echo: str, jitter: int) -> None:
    sent = bytes(range(256)) * 2000
    with connected(echo, 40, jitter) as client:
        begin = time.monotonic()

        def send() -> None:
            for at in range(0, len(sent), 10_000):
                client.sendall(sent[at : at + 10_000])
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        received = b"".join(iter(lambda: client.recv(65536), b""))
        sender.join()
    assert received == sent
    assert time.monotonic() - begin > 0.04


def test_server_that_is_away_closes_the_connection(new_address: Callable[[], str]) -> None:
    with connected(new_address(), 1) as client:
        assert client.recv(1) == b""
