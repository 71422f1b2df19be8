"""Tests of `http/server.py`."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_observe.http import server as http_server
from infeed_observe.http.app import ControlState, create_app
from infeed_observe.http.server import ControlServer, open_control_plane
from infeed_server.config.address import Address
from infeed_server.runtime.options import ServerOptions

HOST = "127.43.0.4"
"""A loopback address used only by these tests, so that a free port stays free."""


def fetch(server: ControlServer) -> int:
    with urllib.request.urlopen(f"http://{server.address}/livez", timeout=60) as response:
        return int(response.status)


def test_port_is_bound_before_start_and_free_after_stop(
    state: ControlState, new_address: Callable[[], str]
):
    early = ControlServer(create_app(state), HOST, Address.parse(new_address()).port)
    with pytest.raises(ConfigError) as caught:
        ControlServer(create_app(state), HOST, early.port)
    assert str(caught.value) == (
        f"cannot listen on {early.address}: address already in use; stop the process that listens "
        "there, or give another --http, where port 0 is any free one"
    )
    early.stop()
    for _ in range(2):
        with ControlServer(create_app(state), HOST, early.port) as late:
            assert fetch(late) == 200


@pytest.mark.parametrize(
    ("http", "insecure", "message"),
    [
        ("unix:/tmp/http.sock", False, "^--http unix:/tmp/http.sock: HTTP needs host:port$"),
        ("0.0.0.0:0", False, "^--http 0.0.0.0:0: .*; add --insecure"),
        ("nothing", True, "--http 'nothing' is not of the form host:port"),
    ],
)
def test_invalid_http_option_is_refused(
    state: ControlState, http: str, insecure: bool, message: str
):
    with pytest.raises(ConfigError, match=message):
        open_control_plane(state, ServerOptions(http=http, insecure=insecure))


def test_stop_does_not_wait_for_a_hanging_request():
    requested = threading.Event()

    async def slow(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        """An app that never answers."""
        requested.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    server = ControlServer(slow, "127.0.0.1", 0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert requested.wait(60)
        server.stop()
        server._thread.join(60)
        assert not server._thread.is_alive()
    server.stop()


def test_a_connection_more_ends_the_oldest(
    state: ControlState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 4)
    with ControlServer(create_app(state), "127.0.0.1", 0) as server, ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        silent = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(12)]
        assert fetch(server) == 200
        for connection in silent[:8]:
            with suppress(ConnectionError):
                assert connection.recv(1) == b""


def test_requests_are_answered_over_tls(state: ControlState, pki: Any) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pki.server, pki.server_key)
    trusted = ssl.create_default_context(cafile=str(pki.ca))
    with (
        ControlServer(create_app(state), "127.0.0.1", 0, tls) as server,
        socket.create_connection(("127.0.0.1", server.port), 60),  # without a handshake
        urllib.request.urlopen(
            f"https://{server.address}/livez", timeout=60, context=trusted
        ) as response,
    ):
        assert response.status == 200


def test_host_names_other_than_the_given_ones_are_refused(state: ControlState):
    server = open_control_plane(state, ServerOptions(http=f"{HOST}:0", http_hosts=["known"]))
    assert server is not None
    statuses = {}
    with server:
        for name in ("known", "localhost", HOST, "rebound.example"):
            with closing(http.client.HTTPConnection(server.address, timeout=60)) as peer:
                peer.request("GET", "/livez", headers={"host": name})
                statuses[name] = peer.getresponse().status
    assert statuses == {"known": 200, "localhost": 200, HOST: 200, "rebound.example": 421}
