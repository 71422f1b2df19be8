"""The control server's life: its address, its start and its end."""

from __future__ import annotations

import signal
import socket
import threading
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from infeed.errors import ConfigError
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.server import ControlServer

LONE = "127.43.0.4"
"""A loopback address at which no other process takes a port that is to be free."""


def fetch(server: ControlServer) -> int:
    with urllib.request.urlopen(f"http://{server.address}/livez", timeout=60) as response:
        return int(response.status)


def test_port_0_takes_a_free_one(state: ControlState):
    with (
        ControlServer(create_app(state), "127.0.0.1", 0) as one,
        ControlServer(create_app(state), "127.0.0.1", 0) as two,
    ):
        assert one.port != two.port
        assert one.address == f"127.0.0.1:{one.port}"
        assert fetch(one) == fetch(two) == 200


def test_a_taken_port_is_a_clear_error(server: ControlServer, state: ControlState):
    with pytest.raises(ConfigError) as caught:
        ControlServer(create_app(state), "127.0.0.1", server.port)
    assert str(caught.value) == f"cannot listen on {server.address}: address already in use"


def test_a_port_is_taken_before_the_start(state: ControlState):
    early = ControlServer(create_app(state), LONE, 0)
    with pytest.raises(ConfigError, match="address already in use"):
        ControlServer(create_app(state), LONE, early.port)
    early.stop()
    with ControlServer(create_app(state), LONE, early.port) as late:
        assert fetch(late) == 200


@pytest.mark.parametrize(
    ("host", "port", "shown"),
    [
        ("192.0.2.1", 0, "cannot listen on 192.0.2.1:0: cannot assign requested address"),
        ("no such host", 80, "cannot listen on no such host:80: "),
        ("127.0.0.1", 70_000, "cannot listen on 127.0.0.1:70000: a port is from 0 to 65535"),
        ("a" * 64, 80, "cannot listen on a+:80: "),
        ("::2", 8471, r"cannot listen on \[::2\]:8471: "),
    ],
)
def test_an_address_that_is_none_is_a_clear_error(
    state: ControlState, host: str, port: int, shown: str
):
    with pytest.raises(ConfigError, match=shown):
        ControlServer(create_app(state), host, port)


def test_a_port_is_free_again_right_after_the_stop(state: ControlState):
    with ControlServer(create_app(state), LONE, 0) as server:
        assert fetch(server) == 200
        port = server.port
    with ControlServer(create_app(state), LONE, port) as server:
        assert fetch(server) == 200


def test_stop_does_not_wait_for_a_request_that_hangs():
    asked = threading.Event()

    async def slow(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        """An app that never answers."""
        asked.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    server = ControlServer(slow, "127.0.0.1", 0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(60)
        server.stop()
        server._thread.join(60)
        assert not server._thread.is_alive()
    server.stop()


def test_signals_stay_with_the_main_thread(state: ControlState):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with ControlServer(create_app(state), "127.0.0.1", 0):
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
