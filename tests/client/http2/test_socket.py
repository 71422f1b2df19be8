"""Client sockets: every wait ends, at its timeout or when the connection is aborted."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.waiting import HANG_SECONDS, blocked_in, until

from infeed.http2 import socket as socket_module
from infeed.http2.socket import ClientSocket


@pytest.fixture
def new_socket() -> Iterator[Callable[[str], ClientSocket]]:
    sockets: list[ClientSocket] = []

    def new(address: str) -> ClientSocket:
        sockets.append(ClientSocket(address))
        return sockets[-1]

    yield new
    for connection in sockets:
        connection.close()


def receive_exactly(connection: ClientSocket, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        size = connection.receive(view, HANG_SECONDS)
        assert size
        view = view[size:]
    return bytes(data)


@contextlib.contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Runs the action once the block waits for the socket."""
    caller = threading.current_thread()

    def act() -> None:
        until(lambda: blocked_in(caller, "_wait"))
        action()

    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join()


def echo(talk: Any) -> None:
    while data := talk.socket.recv(1 << 16):
        talk.send(data)


@pytest.fixture
def unresponsive(peer: Any) -> Iterator[str]:
    """The address of a peer that reads nothing until the test ends."""
    over = threading.Event()
    yield peer(lambda talk: over.wait(2 * HANG_SECONDS))
    over.set()


def test_receive_times_out(peer: Any, new_socket: Any) -> None:
    connection = new_socket(peer(echo))
    connection.open()
    for seconds in (0.01, 0, -1):
        with pytest.raises(TimeoutError):
            connection.receive(memoryview(bytearray(9)), seconds)
    connection.send(b"x")  # the connection still works
    assert receive_exactly(connection, 1) == b"x"


def test_send_times_out(
    unresponsive: str, new_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_module, "SEND_TIMEOUT_SECONDS", 0.1)
    connection = new_socket(unresponsive)
    connection.open()
    with pytest.raises(TimeoutError, match=r"accepted no data for 0\.1 s"):
        connection.send(bytes(50_000_000))


def socket_address(address: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    host, _, port = address.rpartition(":")
    return socket.AF_INET, (host, int(port))


def test_dead_hosts_leave_time_for_the_next(
    full: str, peer: Any, new_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        impossible: Any = (9999, ("127.0.0.1", 1))  # a family that this machine does not have
        refusing = (socket.AF_INET, probe.getsockname())
        hosts = [socket_address(full), impossible, refusing, socket_address(peer(echo))]
        monkeypatch.setattr(socket_module, "resolve", lambda address: hosts)
        connection = new_socket("several:1")
        connection.open(1.0)
    connection.send(b"x")
    assert receive_exactly(connection, 1) == b"x"


@pytest.mark.parametrize("form", ["unix:{}/s", "unix://{}/s"])
def test_unix_sockets(form: str, new_socket: Any, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/s")
        listener.listen()
        connection = new_socket(form.format(tmp_path))
        connection.open()
        connection.send(b"x")
        other, _ = listener.accept()
        with other:
            assert other.recv(9) == b"x"


def test_abort_wakes_receive(peer: Any, new_socket: Any) -> None:
    connection = new_socket(peer(echo))
    connection.open()
    with meanwhile(connection.abort):
        assert connection.receive(memoryview(bytearray(1)), HANG_SECONDS) == 0


def test_abort_wakes_send(
    unresponsive: str, new_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_module, "SEND_TIMEOUT_SECONDS", HANG_SECONDS)
    connection = new_socket(unresponsive)
    connection.open()
    with meanwhile(connection.abort), pytest.raises(BrokenPipeError):
        connection.send(bytes(50_000_000))
