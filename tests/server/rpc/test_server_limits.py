"""The limits of a server: connections, streams, short calls and health calls."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from infeed_server.rpc import server as rpc_server
from infeed_server.rpc.server import SERVICE

GET = f"/{SERVICE}/GetPipeline"
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED

Connect = Callable[..., socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects to a port from a loopback address; all are closed after the test."""
    connections: list[socket.socket] = []

    def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
        connections.append(socket.create_connection(("127.0.0.1", port), 60, (host, 0)))
        return connections[-1]

    yield connect
    for each in connections:
        each.close()


def is_served(connection: socket.socket) -> bool:
    """Returns whether the server sends HTTP/2 on a connection, rather than closing it."""
    try:
        return connection.recv(1) != b""
    except ConnectionError:
        return False


class OpenCalls:
    """Calls that stay open."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._ends: list[threading.Event] = []
        self.calls: list[Any] = []

    def open(self, method: str) -> Any:
        """Opens a call without a request message."""
        end = threading.Event()
        self._ends.append(end)
        requests = (b"" for _ in iter(end.wait, True))
        self.calls.append(self._channel.stream_stream(method)(requests, timeout=120))
        return self.calls[-1]

    def close(self) -> None:
        for call in self.calls:
            call.cancel()
        for end in self._ends:
            end.set()


@pytest.fixture
def open_calls() -> Iterator[Callable[[grpc.Channel], OpenCalls]]:
    started: list[OpenCalls] = []

    def make(channel: grpc.Channel) -> OpenCalls:
        started.append(OpenCalls(channel))
        return started[-1]

    yield make
    for each in started:
        each.close()


def test_connection_beyond_the_total_limit_is_refused(
    start: Any,
    connect: Connect,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rpc_server, "MAX_CONNECTIONS", 2)
    live = start()
    port = live.server.port
    first = connect(port, "127.0.0.1")
    assert is_served(first)
    assert is_served(connect(port, "127.0.0.2"))
    with caplog.at_level("INFO"):
        assert not is_served(connect(port, "127.0.0.3"))
    assert "was refused: the server has 2 connections open already" in caplog.text
    first.close()
    eventually(lambda: len(live.server._open_connections) == 1, "the first is no longer counted")
    assert is_served(connect(port, "127.0.0.3"))


def test_connection_beyond_the_host_limit_is_refused(
    start: Any, connect: Connect, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_server, "MAX_PEER_CONNECTIONS", 2)
    live = start()
    port = live.server.port
    first = connect(port)
    assert is_served(first)
    assert is_served(connect(port))
    assert not is_served(connect(port))
    assert is_served(connect(port, "127.0.0.2"))
    first.close()
    eventually(lambda: len(live.server._open_connections) == 2, "the first is no longer counted")
    assert is_served(connect(port))


def test_failed_connection_is_not_counted(
    start: Any, connect: Connect, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start()
    failed: list[int] = []

    def fail(connection: rpc_server.Connection) -> None:
        failed.append(len(live.server._open_connections))
        connection._socket.close()
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(rpc_server.Connection, "run", fail)
        connect(live.server.port)
        eventually(lambda: failed == [1], "it has failed while counted")
        eventually(lambda: not len(live.server._open_connections), "it is no longer counted")
    assert is_served(connect(live.server.port))


def test_connection_that_cannot_be_wrapped_is_logged(
    start: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live = start()

    def fail(accepted: socket.socket) -> Any:
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(live.server, "_wrap", fail)
        assert not is_served(connect(live.server.port))
    assert is_served(connect(live.server.port))  # by the thread that failed before
    assert len(live.server._open_connections) == 1
    assert "RuntimeError: on purpose" in caplog.text


def set_limits(monkeypatch: pytest.MonkeyPatch, kind: str, total: int, per_host: int) -> None:
    names = {
        "streams": ("MAX_STREAMS", None),
        "calls": ("_MAX_SHORT_CALLS", "_MAX_PEER_SHORT_CALLS"),
        "health calls": ("_MAX_HEALTH_CALLS", "_MAX_PEER_HEALTH_CALLS"),
    }[kind]
    monkeypatch.setattr(rpc_server, names[0], total)
    if names[1] is not None:
        monkeypatch.setattr(rpc_server, names[1], per_host)


METHODS = {
    "streams": f"/{SERVICE}/StreamBatches",
    "calls": GET,
    "health calls": "/grpc.health.v1.Health/Check",
}


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("whose", ["the server", "127.0.0.1"])
def test_call_beyond_its_limit_is_refused(
    start: Any,
    open_calls: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    whose: str,
) -> None:
    total, per_host = (2, 9) if whose == "the server" else (9, 2)
    set_limits(monkeypatch, kind, total, per_host)
    live = start(peer_streams=per_host if kind == "streams" else 9)
    limit = {
        "streams": live.server._streams,
        "calls": live.server._short_calls,
        "health calls": live.server._health_calls,
    }[kind]
    with grpc.insecure_channel(live.address) as channel:
        calls = open_calls(channel)
        for _ in range(2):
            calls.open(METHODS[kind])
        eventually(lambda: len(limit) == 2, "both are open")
        with pytest.raises(grpc.RpcError) as caught:
            next(calls.open(METHODS[kind]))
        assert caught.value.code() is EXHAUSTED
        assert caught.value.details() == f"{whose} has 2 {kind} open already"
        # Other kinds have their own limits.
        others = [method for name, method in METHODS.items() if name != kind]
        for method in others:
            calls.open(method)
        limits = (live.server._streams, live.server._short_calls, live.server._health_calls)
        eventually(lambda: sum(map(len, limits)) == 4, "the others are open")
        # A call that ends makes room.
        calls.calls[0].cancel()
        eventually(lambda: len(limit) == 1, "it is no longer counted")
        calls.open(METHODS[kind])
        eventually(lambda: len(limit) == 2, "another call is open")


def test_connection_during_stop_is_refused(start: Any, connect: Connect) -> None:
    live = start()
    live.server._stopping = True
    assert not is_served(connect(live.server.port))
    live.server._stopping = False
    assert is_served(connect(live.server.port))
