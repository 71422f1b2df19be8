"""Addresses that are listened on."""

from __future__ import annotations

import errno
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infeed_server.http2 import listener as listener_module
from infeed_server.http2.listener import Listener

LONE, OTHER = "127.43.0.1", "127.43.0.2"
"""Loopback addresses at which no other process takes a port that is to be free."""


class Taken:
    """Connections that a listener has taken."""

    def __init__(self) -> None:
        self._all: queue.SimpleQueue[tuple[socket.socket, str]] = queue.SimpleQueue()

    def put(self, connection: socket.socket, name: str) -> None:
        self._all.put((connection, name))

    def next(self) -> str:
        connection, name = self._all.get(timeout=60)
        connection.close()
        return name


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def start(address: str, **options: Any) -> Listener:
        made.append(Listener(address, **options))
        return made[-1]

    yield start
    for each in made:
        each.close()


def connect(host: str, port: int) -> str:
    """From which address a connection was made."""
    with socket.create_connection((host, port), timeout=60) as connection:
        place = connection.getsockname()
        return f"[{place[0]}]:{place[1]}" if ":" in place[0] else f"{place[0]}:{place[1]}"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_each_address_of_a_host(listen: Any, host: str) -> None:
    listener, taken = listen(f"{host}:0"), Taken()
    listener.start(taken.put)
    found = socket.getaddrinfo(host.strip("[]"), listener.port, type=socket.SOCK_STREAM)
    assert listener.port
    for _, _, _, _, place in found:
        assert connect(str(place[0]), listener.port) == taken.next()


def test_all_addresses(listen: Any) -> None:
    listener, taken = listen("[::]:0"), Taken()
    listener.start(taken.put)
    for host in ("127.0.0.1", "::1"):
        connect(host, listener.port)
        taken.next()


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets `some.name` have these addresses."""

    real = socket.getaddrinfo

    def be(*hosts: str) -> None:
        def resolve(name: str, port: int, *rest: Any, **options: Any) -> Any:
            if name != "some.name":
                return real(name, port, *rest, **options)
            return [
                (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
                for host in hosts
            ]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)

    return be


def test_several_addresses_have_one_port(listen: Any, resolved: Any) -> None:
    resolved("127.0.0.1", "127.0.0.2", "127.0.0.2")
    listener, taken = listen("some.name:0"), Taken()
    listener.start(taken.put)
    for host in ("127.0.0.1", "127.0.0.2"):
        connect(host, listener.port)
        taken.next()


def test_a_port_that_is_taken_at_the_second_address(
    listen: Any, resolved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved(LONE, OTHER)
    with socket.create_server((OTHER, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listen(f"some.name:{port}")
        with socket.create_server((LONE, port)):
            pass  # it was left
        bind, asked = listener_module._bind, []

        def unlucky(family: int, where: Any, share: bool) -> socket.socket:
            asked.append(where)
            return bind(family, (where[0], port if len(asked) == 1 else where[1]), share)

        monkeypatch.setattr(listener_module, "_bind", unlucky)
        assert listen("some.name:0").port != port
    assert [host for host, _ in asked] == [LONE, OTHER] * 2


def test_addresses_that_the_machine_has_not(listen: Any, resolved: Any) -> None:
    resolved("192.0.2.1", "127.0.0.1")
    assert listen("some.name:0").port
    resolved("192.0.2.1")
    with pytest.raises(OSError, match="assign") as caught:
        listen("some.name:0")
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_a_name_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*asked: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match="known"):
        Listener("nowhere.invalid:0")


def test_a_taken_port(listen: Any) -> None:
    port = listen("127.0.0.1:0").port
    with pytest.raises(OSError, match="in use"):
        Listener(f"127.0.0.1:{port}")
    with pytest.raises(OSError, match="in use"):  # both must agree
        Listener(f"127.0.0.1:{port}", share_port=True)


def test_a_shared_port(listen: Any) -> None:
    port = listen("127.0.0.1:0", share_port=True).port
    assert listen(f"127.0.0.1:{port}", share_port=True).port == port


def test_a_port_is_free_after_the_close(listen: Any) -> None:
    first = listen(f"{LONE}:0")
    first.start(Taken().put)
    first.close()
    first.close()
    assert listen(f"{LONE}:{first.port}").port == first.port


def test_a_close_waits_for_who_takes_a_connection(listen: Any) -> None:
    """A socket whose number is another file's by then would be accepted from."""
    is_taken, may_end = threading.Event(), threading.Event()

    def take(connection: socket.socket, name: str) -> None:
        is_taken.set()
        assert may_end.wait(60)
        connection.close()

    listener = listen("127.0.0.1:0")
    listener.start(take)
    (thread,) = listener._threads
    join = thread.join

    def joined() -> None:
        may_end.set()
        join()

    thread.join = joined
    with socket.create_connection(("127.0.0.1", listener.port), timeout=60):
        assert is_taken.wait(60)
        listener.close()
        assert not thread.is_alive()


def test_a_connection_that_cannot_be_taken_ends_alone(
    listen: Any, caplog: pytest.LogCaptureFixture
) -> None:
    taken, failed = Taken(), []

    def take(connection: socket.socket, name: str) -> None:
        if not failed:
            failed.append(name)
            raise RuntimeError("no thread")
        taken.put(connection, name)

    listener = listen("127.0.0.1:0")
    listener.start(take)
    with socket.create_connection(("127.0.0.1", listener.port), timeout=60) as lost:
        assert lost.recv(1) == b""
    assert connect("127.0.0.1", listener.port) == taken.next()
    assert "no thread" in caplog.text


def test_an_accept_that_fails_is_tried_again(
    listen: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "_RETRY_SECONDS", 0.01)
    listener, taken = listen("127.0.0.1:0"), Taken()
    real, failed = socket.socket.accept, []

    def accept(one: socket.socket) -> Any:
        if not failed:
            failed.append(one)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(one)

    monkeypatch.setattr(socket.socket, "accept", accept)
    listener.start(taken.put)
    assert connect("127.0.0.1", listener.port) == taken.next()
    assert "Too many open files" in caplog.text


def test_a_unix_socket(listen: Any, tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener, taken = listen(f"unix:{path}"), Taken()
    listener.start(taken.put)
    assert listener.port == 0
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        assert taken.next() == "unix"
    listener.close()
    assert not path.exists()


def test_a_unix_socket_that_was_left_behind(listen: Any, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    listener, taken = listen(f"unix:{path}"), Taken()
    listener.start(taken.put)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        taken.next()


def test_a_unix_socket_that_is_used(listen: Any, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    first, taken = listen(address), Taken()
    with pytest.raises(OSError, match="in use"):
        Listener(address)
    first.start(taken.put)
    taken.next()  # it was asked whether it is there
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{tmp_path}/s")
        taken.next()


def test_a_path_that_another_has_taken_is_left_to_it(listen: Any, tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = listen(f"unix:{path}")
    path.rename(tmp_path / "kept")  # so that its number is not given to the next one
    second = listen(f"unix:{path}")
    first.close()
    assert path.is_socket()
    second.close()
    assert not path.exists()


def test_a_path_that_is_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(OSError, match="in use"):
        Listener(f"unix:{path}")
    assert path.read_text() == "precious"
    with pytest.raises(OSError, match="No such file"):
        Listener(f"unix:{tmp_path}/missing/s")
    with pytest.raises(OSError, match="too long"):
        Listener(f"unix:{tmp_path}/{'x' * 200}")
