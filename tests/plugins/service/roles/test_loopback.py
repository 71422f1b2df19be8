"""Tests of the restriction of listeners to loopback."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.plugins.service.conftest import LOCAL, non_loopback_host

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_service.roles import loopback
from infeed_service.roles.dispatcher import DispatcherRole
from infeed_service.roles.loopback import (
    check_listen_address,
    restrict_if_loopback,
    restrict_to_loopback,
)


def can_connect(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 10).close()
    except ConnectionRefusedError:
        return False
    return True


def test_dispatcher_and_worker_accept_loopback_only(
    dispatcher: DispatcherRole, worker: Callable[..., Any]
) -> None:
    host = non_loopback_host()
    for port in (dispatcher.port, worker().port):
        assert can_connect("127.0.0.1", port)
        assert not can_connect(host, port)


def test_earlier_connection_is_closed() -> None:
    host = non_loopback_host()
    with closing(socket.create_server(("0.0.0.0", 0))) as server:
        port = server.getsockname()[1]
        with closing(socket.create_connection((host, port), 10)) as remote:
            accepted, _ = server.accept()
            assert restrict_to_loopback(port)
            assert remote.recv(1) == b""
            accepted.close()
        assert can_connect("127.0.0.1", port)
        assert not can_connect(host, port)


def test_system_without_restriction_needs_insecure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loopback, "restrict_to_loopback", lambda port: False)
    with pytest.raises(ConfigError, match=r"cannot restrict it to loopback, .*; add --insec"):
        restrict_if_loopback(LOCAL, 1, insecure=False)
    restrict_if_loopback(LOCAL, 1, insecure=True)
    assert "--listen 127.0.0.1:0: other machines can reach it" in caplog.text
    restrict_if_loopback(Address("0.0.0.0", 0), 1, insecure=True)


def test_non_loopback_address_needs_insecure() -> None:
    with pytest.raises(ConfigError, match="use neither encryption nor authentication; add --ins"):
        check_listen_address(Address("0.0.0.0", 0), insecure=False)
    check_listen_address(Address("0.0.0.0", 0), insecure=True)
    check_listen_address(Address("::1", 0), insecure=False)


def test_unix_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="unix:/x: TensorFlow's processes need host:port"):
        check_listen_address(Address.parse("unix:/x"), insecure=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0"])
def test_port_in_use_on_any_address_is_refused(host: str) -> None:
    with closing(socket.create_server((host, 0))) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match="address already in use"):
            check_listen_address(Address("127.0.0.1", port), insecure=False)
