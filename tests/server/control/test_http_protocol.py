"""Limits of the control plane's connections: their number, and the time for a request."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.harness.waiting import wait_until

from infeed_server.control import http_protocol
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer

HOST = "127.0.0.1"
SECONDS = 0.3
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(http_protocol, "REQUEST_TIMEOUT_SECONDS", SECONDS)


@pytest.fixture
def server(limits: None) -> Iterator[ControlServer]:
    app = create_app(ControlState(Health(), CollectorRegistry(), "1"))
    with ControlServer(app, HOST, 0) as server:
        yield server


def get(server: ControlServer, connection: http.client.HTTPConnection | None = None) -> int:
    own = http.client.HTTPConnection(HOST, server.port, timeout=60)
    with contextlib.closing(own):
        connection = connection or own
        connection.request("GET", "/livez")
        response = connection.getresponse()
        response.read()
        return response.status


def ends(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("begin", [b"", b"GET /livez HTTP/1.1\r\nHost: a\r\nX: "])
def test_connection_without_a_request_ends(server: ControlServer, begin: bytes) -> None:
    with socket.create_connection((HOST, server.port), 60) as connection:
        start = time.monotonic()
        connection.sendall(begin)
        assert ends(connection)
        assert time.monotonic() - start >= 0.9 * SECONDS


def test_slow_second_request_ends_the_connection(server: ControlServer) -> None:
    with socket.create_connection((HOST, server.port), 60) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        received = b""
        while b"ok" not in received:
            received += connection.recv(1 << 12)
        connection.sendall(b"GET")  # which ends uvicorn's own time-out
        assert ends(connection)


def test_requests_of_a_kept_connection_are_answered(server: ControlServer) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    assert [get(server, connection) for _ in range(3)] == [200] * 3
    connection.close()


def test_idle_connections_do_not_keep_others_out(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_TIMEOUT_SECONDS", 3600.0)
    idle = [socket.create_connection((HOST, server.port), 60) for _ in range(12)]
    assert get(server) == 200
    assert all(ends(connection) for connection in idle[:8])  # the oldest
    for connection in idle:
        connection.close()


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """An app that needs more time than a request may take, as a preview behind other batches."""
    await asyncio.sleep(3 * SECONDS)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"made"})


@pytest.mark.usefixtures("limits")
def test_an_answer_may_take_longer_than_a_request() -> None:
    with ControlServer(slow, HOST, 0) as server:
        assert get(server) == 200


@pytest.mark.usefixtures("limits")
def test_an_answer_that_is_never_made_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "ANSWER_TIMEOUT_SECONDS", SECONDS)
    with (
        ControlServer(slow, HOST, 0) as server,
        socket.create_connection((HOST, server.port), 60) as connection,
    ):
        connection.sendall(REQUEST)
        assert ends(connection)


async def large(scope: Any, receive: Any, send: Any) -> None:
    """An app whose response fills every buffer of a connection."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(1 << 24)})


@pytest.fixture
def large_server(limits: None) -> Iterator[ControlServer]:
    with ControlServer(large, HOST, 0) as running:
        yield running


def take_nothing(server: ControlServer, count: int) -> list[socket.socket]:
    """Opens connections that read the begin of a response, and send a second request.

    uvicorn takes the first response for sent, and waits with the second.
    """
    opened = []
    for _ in range(count):
        opened.append(connection := socket.create_connection((HOST, server.port), 60))
        connection.sendall(REQUEST)
        assert connection.recv(1)
        connection.sendall(REQUEST)
    wait_until(lambda: len(unsent(server)) == count, "the second responses wait")
    return opened


def unsent(server: ControlServer) -> list[Any]:
    connections: Any = server._server.server_state.connections
    return [each for each in connections if each.cycle and not each.cycle.response_complete]


def test_connection_that_takes_no_response_ends(
    large_server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_TIMEOUT_SECONDS", 3 * SECONDS)
    (connection,) = take_nothing(large_server, 1)
    wait_until(lambda: not large_server._server.server_state.connections, "it has ended", 60)
    connection.close()


def test_unread_responses_do_not_keep_others_out(
    large_server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_TIMEOUT_SECONDS", 3600.0)
    opened = take_nothing(large_server, http_protocol.MAX_CONNECTIONS)
    opened.append(other := socket.create_connection((HOST, large_server.port), 60))
    other.sendall(REQUEST)
    assert other.recv(1)
    for connection in opened:
        connection.close()
