"""Listening on TCP and Unix addresses, and accepting connections."""

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

ADDRESS, OTHER_ADDRESS = "127.43.0.1", "127.43.0.2"
"""Loopback addresses that no other process uses, so that free ports stay free."""


class Accepted:
    """The connections that a listener accepted."""

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
    listeners: list[Listener] = []

    def start(address: str, **options: Any) -> Listener:
        listeners.append(Listener(address, **options))
        return listeners[-1]

    yield start
    for each in listeners:
        each.close()


def connect(host: str, port: int) -> str:
    """Connects and returns the local address, as the server names the peer."""
    with socket.create_connection((host, port), timeout=60) as connection:
        host, port = connection.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_listens_on_each_address_of_a_host(listen: Any, host: str) -> None:
    listener, accepted = listen(f"{host}:0"), Accepted()
    listener.start(accepted.put)
    infos = socket.getaddrinfo(host.strip("[]"), listener.port, type=socket.SOCK_STREAM)
    assert listener.port
    for _, _, _, _, address in infos:
        assert connect(str(address[0]), listener.port) == accepted.next()


def test_wildcard_listens_on_both_families(listen: Any) -> None:
    listener, accepted = listen("[::]:0"), Accepted()
    listener.start(accepted.put)
    for host in ("127.0.0.1", "::1"):
        connect(host, listener.port)
        accepted.next()


@pytest.fixture
def resolve_to(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes `some.name` resolve to the given addresses."""

    real = socket.getaddrinfo

    def set_hosts(*hosts: str) -> None:
        def resolve(name: str, port: int, *rest: Any, **options: Any) -> Any:
            if name != "some.name":
                return real(name, port, *rest, **options)
            return [
                (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
                for host in hosts
            ]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)

    return set_hosts


def test_all_addresses_of_a_host_share_one_port(listen: Any, resolve_to: Any) -> None:
    resolve_to("127.0.0.1", "127.0.0.2", "127.0.0.2")
    listener, accepted = listen("some.name:0"), Accepted()
    listener.start(accepted.put)
    for host in ("127.0.0.1", "127.0.0.2"):
        connect(host, listener.port)
        accepted.next()


def test_port_in_use_at_one_address_is_not_bound(
    listen: Any, resolve_to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(ADDRESS, OTHER_ADDRESS)
    with socket.create_server((OTHER_ADDRESS, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listen(f"some.name:{port}")
        with socket.create_server((ADDRESS, port)):
            pass  # the port at the first address is free again
        bind, bound = listener_module._bind, []

        def bind_used_port_first(family: int, where: Any, share: bool) -> socket.socket:
            bound.append(where)
            return bind(family, (where[0], port if len(bound) == 1 else where[1]), share)

        monkeypatch.setattr(listener_module, "_bind", bind_used_port_first)
        assert listen("some.name:0").port != port
    assert [host for host, _ in bound] == [ADDRESS, OTHER_ADDRESS] * 2


def test_foreign_addresses_are_skipped_unless_all_are(listen: Any, resolve_to: Any) -> None:
    resolve_to("192.0.2.1", "127.0.0.1")
    assert listen("some.name:0").port
    resolve_to("192.0.2.1")
    with pytest.raises(OSError, match="assign") as caught:
        listen("some.name:0")
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_unknown_host_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match="known"):
        Listener("nowhere.invalid:0")


def test_port_in_use_raises(listen: Any) -> None:
    port = listen("127.0.0.1:0").port
    with pytest.raises(OSError, match="in use"):
        Listener(f"127.0.0.1:{port}")
    with pytest.raises(OSError, match="in use"):  # both sockets must allow it
        Listener(f"127.0.0.1:{port}", share_port=True)


def test_port_can_be_shared(listen: Any) -> None:
    port = listen("127.0.0.1:0", share_port=True).port
    assert listen(f"127.0.0.1:{port}", share_port=True).port == port


def test_port_is_free_after_close(listen: Any) -> None:
    first, accepted = listen(f"{ADDRESS}:0"), Accepted()
    first.start(accepted.put)
    with socket.create_connection((ADDRESS, first.port), timeout=60) as connection:
        accepted.next()
        assert connection.recv(1) == b""  # closed by the server, whose end is in TIME_WAIT
    first.close()
    first.close()
    assert listen(f"{ADDRESS}:{first.port}").port == first.port


def test_close_waits_for_a_running_callback(listen: Any) -> None:
    """Else the thread could accept from another file with the same descriptor."""
    is_called, may_end = threading.Event(), threading.Event()

    def callback(connection: socket.socket, name: str) -> None:
        is_called.set()
        assert may_end.wait(60)
        connection.close()

    listener = listen("127.0.0.1:0")
    listener.start(callback)
    (thread,) = listener._threads
    join = thread.join

    def joined() -> None:
        may_end.set()
        join()

    thread.join = joined
    with socket.create_connection(("127.0.0.1", listener.port), timeout=60):
        assert is_called.wait(60)
        listener.close()
        assert not thread.is_alive()


def test_failed_callback_closes_only_its_connection(
    listen: Any, caplog: pytest.LogCaptureFixture
) -> None:
    accepted, failed = Accepted(), []

    def callback(connection: socket.socket, name: str) -> None:
        if not failed:
            failed.append(name)
            raise RuntimeError("no thread")
        accepted.put(connection, name)

    listener = listen("127.0.0.1:0")
    listener.start(callback)
    with socket.create_connection(("127.0.0.1", listener.port), timeout=60) as lost:
        assert lost.recv(1) == b""
    assert connect("127.0.0.1", listener.port) == accepted.next()
    assert "no thread" in caplog.text


def test_failed_accept_is_retried(
    listen: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "_ACCEPT_RETRY_INTERVAL_SECONDS", 0.01)
    listener, accepted = listen("127.0.0.1:0"), Accepted()
    real, failed = socket.socket.accept, []

    def accept(sock: socket.socket) -> Any:
        if not failed:
            failed.append(sock)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(sock)

    monkeypatch.setattr(socket.socket, "accept", accept)
    listener.start(accepted.put)
    assert connect("127.0.0.1", listener.port) == accepted.next()
    assert "Too many open files" in caplog.text


def test_unix_socket_is_served_and_removed(listen: Any, tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener, accepted = listen(f"unix:{path}"), Accepted()
    listener.start(accepted.put)
    assert listener.port == 0
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        assert accepted.next() == "unix"
    listener.close()
    assert not path.exists()


def test_stale_unix_socket_is_replaced(listen: Any, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    listener, accepted = listen(f"unix:{path}"), Accepted()
    listener.start(accepted.put)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        accepted.next()


def test_unix_socket_in_use_is_kept(listen: Any, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    first, accepted = listen(address), Accepted()
    with pytest.raises(OSError, match="in use"):
        Listener(address)
    first.start(accepted.put)
    accepted.next()  # the probe of the second listener
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{tmp_path}/s")
        accepted.next()


def test_unix_socket_of_a_busy_server_is_kept(
    listen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_BACKLOG", 0)
    monkeypatch.setattr(listener_module, "_PROBE_TIMEOUT_SECONDS", 0.01)
    listen(f"unix:{tmp_path}/s")
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(f"{tmp_path}/s")  # not accepted: the backlog is full
        with pytest.raises(OSError, match="in use"):
            Listener(f"unix:{tmp_path}/s")


def test_second_close_keeps_the_socket_of_a_later_server(listen: Any, tmp_path: Path) -> None:
    path, later = tmp_path / "s", tmp_path / "later"
    first = listen(f"unix:{path}")
    later.hardlink_to(path)  # a later file may have the same inode
    first.close()
    later.rename(path)
    first.close()
    assert path.is_socket()


def test_replaced_unix_socket_is_not_removed(listen: Any, tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = listen(f"unix:{path}")
    path.rename(tmp_path / "kept")  # so that its inode is not reused
    second = listen(f"unix:{path}")
    first.close()
    assert path.is_socket()
    second.close()
    assert not path.exists()


def test_path_of_another_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(OSError, match="in use"):
        Listener(f"unix:{path}")
    assert path.read_text() == "precious"
    with pytest.raises(OSError, match="No such file"):
        Listener(f"unix:{tmp_path}/missing/s")
    with pytest.raises(OSError, match="too long"):
        Listener(f"unix:{tmp_path}/{'x' * 200}")
