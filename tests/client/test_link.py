"""The socket under a call: every wait on it ends, by itself or by being cut."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.waiting import HANG_SECONDS, Clock, blocked_in, until

from infeed import link
from infeed.link import Link


@pytest.fixture
def new_link() -> Iterator[Callable[[str], Link]]:
    links: list[Link] = []

    def new(address: str) -> Link:
        links.append(Link(address))
        return links[-1]

    yield new
    for each in links:
        each.close()


def received(connection: Link, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = connection.receive(view, HANG_SECONDS)
        assert got
        view = view[got:]
    return bytes(data)


@contextlib.contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Does it when the block waits for the socket."""
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
def holding(peer: Any) -> Iterator[str]:
    """The address of a peer that takes nothing and leaves after the test."""
    over = threading.Event()
    yield peer(lambda talk: over.wait(2 * HANG_SECONDS))
    over.set()


def test_there_and_back(peer: Any, new_link: Any) -> None:
    connection = new_link(peer(echo))
    connection.open()
    data = os.urandom(3_000_000)
    sender = threading.Thread(target=connection.send, args=(data,))
    sender.start()
    assert received(connection, len(data)) == data
    sender.join()


def test_the_end_is_zero_bytes(peer: Any, new_link: Any) -> None:
    connection = new_link(peer(lambda talk: talk.send(b"ab")))
    connection.open()
    assert received(connection, 2) == b"ab"
    assert connection.receive(memoryview(bytearray(9)), HANG_SECONDS) == 0


def test_silence_is_a_timeout(peer: Any, new_link: Any) -> None:
    connection = new_link(peer(echo))
    connection.open()
    for seconds in (0.01, 0, -1):
        with pytest.raises(TimeoutError):
            connection.receive(memoryview(bytearray(9)), seconds)
    connection.send(b"x")  # and it goes on
    assert received(connection, 1) == b"x"


def test_a_peer_that_takes_nothing(
    holding: str, new_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "SEND_SECONDS", 0.1)
    connection = new_link(holding)
    connection.open()
    with pytest.raises(TimeoutError, match=r"takes nothing for 0\.1 s"):
        connection.send(bytes(50_000_000))


def test_nobody_listens(new_link: Any) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        connection = new_link(f"127.0.0.1:{probe.getsockname()[1]}")
        with pytest.raises(ConnectionRefusedError):
            connection.open()
    with pytest.raises(OSError, match=r"was closed|descriptor"):
        connection.receive(memoryview(bytearray(1)), 1)


def test_a_server_that_does_not_accept(full: str, new_link: Any) -> None:
    with pytest.raises(TimeoutError):
        new_link(full).open(0.1)


def test_hosts_are_tried_in_turn_and_none_takes_all_the_time(
    full: str, peer: Any, new_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def where(address: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
        host, _, port = address.rpartition(":")
        return socket.AF_INET, (host, int(port))

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        refusing = probe.getsockname()
        impossible: Any = (9999, ("127.0.0.1", 1))  # a family that this machine does not have
        hosts = [impossible, (socket.AF_INET, refusing), where(full), where(peer(echo))]
        monkeypatch.setattr(link, "resolve", lambda address: hosts)
        clock, shares = Clock(), []
        monkeypatch.setattr(link, "time", clock)
        connect = Link._connect

        def timed(self: Link, host: Any, timeout: float) -> None:
            shares.append(timeout)
            if host == hosts[2]:
                clock.now += timeout
                timeout = 0.05
            connect(self, host, timeout)

        monkeypatch.setattr(Link, "_connect", timed)
        connection = new_link("several:1")
        connection.open(60.0)
        assert shares == [15, 20, 30, 30]
    connection.send(b"x")
    assert received(connection, 1) == b"x"


def test_a_name_without_hosts(new_link: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "resolve", lambda address: [])
    with pytest.raises(ConnectionError, match="nowhere:1 has no address"):
        new_link("nowhere:1").open()


@pytest.mark.parametrize("form", ["unix:{}/s", "unix://{}/s"])
def test_unix_sockets(form: str, new_link: Any, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/s")
        listener.listen()
        connection = new_link(form.format(tmp_path))
        connection.open()
        connection.send(b"x")
        other, _ = listener.accept()
        with other:
            assert other.recv(9) == b"x"


def test_a_cut_wakes_who_connects(full: str, new_link: Any) -> None:
    connection = new_link(full)
    with (
        meanwhile(connection.cut),
        pytest.raises(ConnectionError) as caught,
    ):
        connection.open(HANG_SECONDS)
    assert not isinstance(caught.value, TimeoutError)


def test_a_cut_wakes_who_receives(peer: Any, new_link: Any) -> None:
    connection = new_link(peer(echo))
    connection.open()
    with meanwhile(connection.cut):
        assert connection.receive(memoryview(bytearray(1)), HANG_SECONDS) == 0


def test_a_cut_wakes_who_sends(
    holding: str, new_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "SEND_SECONDS", HANG_SECONDS)
    connection = new_link(holding)
    connection.open()
    with meanwhile(connection.cut), pytest.raises(BrokenPipeError):
        connection.send(bytes(50_000_000))


def test_what_was_cut_does_not_open(peer: Any, new_link: Any) -> None:
    connection = new_link(peer(echo))
    connection.cut()
    with pytest.raises(ConnectionAbortedError):
        connection.open()
    connection.close()
    connection.close()
    connection.cut()


def test_what_was_closed_does_not_open(peer: Any, new_link: Any) -> None:
    connection = new_link(peer(echo))
    connection.close()
    with pytest.raises(ConnectionAbortedError):
        connection.open()
    with pytest.raises(ConnectionAbortedError, match="was closed"):
        connection.send(b"x")


def test_small_pieces_are_sent_at_once(peer: Any, new_link: Any) -> None:
    connection = new_link(peer(echo))
    connection.open()
    assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_more_files_than_select_can_tell_apart(peer: Any, new_link: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this machine allows no more than 2048 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        connection = new_link(peer(echo))
        connection.open()
        connection.send(b"x")
        assert received(connection, 1) == b"x"
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
