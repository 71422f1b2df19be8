"""What listens on every address, kept to this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from tests.server.cluster.conftest import LOCAL, other_host

from infeed.errors import ConfigError
from infeed_server.cluster import loopback
from infeed_server.cluster.dispatcher import DispatcherRole
from infeed_server.cluster.loopback import confine, keep_to_loopback, require_listen
from infeed_server.config.address import Address


def connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 10).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_dispatcher_and_a_worker_answer_over_loopback_alone(
    dispatcher: DispatcherRole, worker: Callable[..., Any]
) -> None:
    host = other_host()
    for port in (dispatcher.port, worker().port):
        assert connects("127.0.0.1", port)
        assert not connects(host, port)


def test_who_came_from_elsewhere_before_is_cut_off() -> None:
    host = other_host()
    with closing(socket.create_server(("0.0.0.0", 0))) as server:
        port = server.getsockname()[1]
        with (
            closing(socket.create_connection((host, port), 10)) as stranger,
            closing(socket.create_connection(("127.0.0.1", port), 10)) as friend,
        ):
            accepted = [server.accept()[0] for _ in range(2)]
            assert confine(port)
            assert stranger.recv(1) == b""
            for each in accepted:
                if each.getpeername()[0] == "127.0.0.1":
                    each.send(b"x")
            assert friend.recv(1) == b"x"
            for each in accepted:
                each.close()
        assert not connects(host, port)


def test_a_port_that_nobody_listens_on_is_not_confined() -> None:
    assert not confine(1)


class Kernel:
    """A listener whose kernel takes the option, refuses it or forgets it."""

    def __init__(self, kept: bytes | None) -> None:
        self.kept = kept

    def setsockopt(self, *_: object) -> None:
        if self.kept is None:
            raise PermissionError("only root")

    def getsockopt(self, *_: object) -> bytes | None:
        return self.kept


@pytest.mark.parametrize(
    ("kept", "confined"), [(loopback.LOOPBACK, True), (b"", False), (None, False)]
)
def test_it_is_confined_if_the_kernel_says_so(
    kept: bytes | None, confined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = SimpleNamespace(listens=True, socket=Kernel(kept))
    monkeypatch.setattr(loopback, "owned", lambda port: [listener])
    assert confine(1) is confined


class Accepted:
    """A connection from a host."""

    is_open = True

    def __init__(self, host: str) -> None:
        self.host = host

    def getpeername(self) -> tuple[str, int]:
        return self.host, 1

    def shutdown(self, how: int) -> None:
        self.is_open = False


@pytest.mark.parametrize(
    ("host", "stays"),
    [
        ("127.0.0.2", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.3", False),
        ("10.0.0.3", False),
        ("fe80::3%eth0", False),
    ],
)
def test_connections_from_elsewhere_are_cut_off(
    host: str, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = Accepted(host)
    found = SimpleNamespace(listens=False, socket=accepted)
    monkeypatch.setattr(loopback, "owned", lambda port: [found])
    assert not confine(1), "there is no listener"
    assert accepted.is_open is stays


def test_a_system_that_cannot_confine_needs_the_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loopback, "confine", lambda port: False)
    with pytest.raises(ConfigError, match="this system cannot keep them to loopback; add --insec"):
        keep_to_loopback(LOCAL, 1, insecure=False)
    keep_to_loopback(LOCAL, 1, insecure=True)
    assert "is open to other machines" in caplog.text
    keep_to_loopback(Address("0.0.0.0", 0), 1, insecure=True)


def test_an_address_for_strangers_needs_the_word() -> None:
    with pytest.raises(ConfigError, match="listen on every address, without encryption and"):
        require_listen(Address("0.0.0.0", 0), insecure=False)
    require_listen(Address("0.0.0.0", 0), insecure=True)
    require_listen(Address("::1", 0), insecure=False)


def test_a_path_is_no_address_for_tensorflow() -> None:
    with pytest.raises(ConfigError, match="unix:/x: TensorFlow's processes need host:port"):
        require_listen(Address.parse("unix:/x"), insecure=True)


@pytest.mark.parametrize("taken", ["127.0.0.1", "127.0.0.2", "0.0.0.0"])
def test_a_port_that_is_taken_on_any_address(taken: str) -> None:
    with closing(socket.create_server((taken, 0))) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match="address already in use"):
            require_listen(Address("127.0.0.1", port), insecure=False)
