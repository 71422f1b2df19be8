"""The limits of a server, reached by peers: connections, streams, short calls and health calls."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed_server.rpc import server as rpc_server
from infeed_server.rpc.server import SERVICE

GET = f"/{SERVICE}/GetPipeline"
FULL = grpc.StatusCode.RESOURCE_EXHAUSTED

Dial = Callable[..., socket.socket]


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Connects to a port from an address of this host; all connections end with the test."""
    made: list[socket.socket] = []

    def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
        made.append(socket.create_connection(("127.0.0.1", port), 60, (host, 0)))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def is_taken(connection: socket.socket) -> bool:
    """Whether the server speaks HTTP/2 on a connection, rather than ending it."""
    try:
        return connection.recv(1) != b""
    except ConnectionError:
        return False


class Hanging:
    """Calls that stay open, each until it is told to end."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._ends: list[threading.Event] = []
        self.calls: list[Any] = []

    def open(self, method: str) -> Any:
        """A call whose request does not come."""
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
def hanging() -> Iterator[Callable[[grpc.Channel], Hanging]]:
    made: list[Hanging] = []

    def make(channel: grpc.Channel) -> Hanging:
        made.append(Hanging(channel))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_connection_beyond_the_limit_of_the_server_is_refused(
    start: Any,
    dial: Dial,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rpc_server, "MAX_CONNECTIONS", 2)
    live = start()
    port = live.server.port
    first = dial(port, "127.0.0.1")
    assert is_taken(first)
    assert is_taken(dial(port, "127.0.0.2"))
    with caplog.at_level("INFO"):
        assert not is_taken(dial(port, "127.0.0.3"))
    assert "was refused: the server has 2 connections open already" in caplog.text
    first.close()
    eventually(lambda: len(live.server._places) == 1, "the place of the first is free")
    assert is_taken(dial(port, "127.0.0.3"))


def test_a_connection_beyond_the_limit_of_a_host_is_refused(
    start: Any, dial: Dial, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_server, "MAX_PEER_CONNECTIONS", 2)
    live = start()
    port = live.server.port
    first = dial(port)
    assert is_taken(first)
    assert is_taken(dial(port))
    assert not is_taken(dial(port))
    assert is_taken(dial(port, "127.0.0.2"))
    first.close()
    eventually(lambda: len(live.server._places) == 2, "the place of the first is free")
    assert is_taken(dial(port))


def test_a_connection_that_fails_leaves_its_place(
    start: Any, dial: Dial, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start()
    failed: list[int] = []

    def fail(connection: rpc_server.Connection) -> None:
        failed.append(len(live.server._places))
        connection._wire.close()
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(rpc_server.Connection, "run", fail)
        dial(live.server.port)
        eventually(lambda: failed == [1], "it has failed, at its place")
        eventually(lambda: not len(live.server._places), "its place is free")
    assert is_taken(dial(live.server.port))


def test_a_connection_that_cannot_be_served_is_logged_and_leaves_its_place(
    start: Any, dial: Dial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live = start()

    def fail(accepted: socket.socket) -> Any:
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(live.server, "_wire", fail)
        assert not is_taken(dial(live.server.port))
    assert is_taken(dial(live.server.port))  # by the thread that failed before
    assert len(live.server._places) == 1
    assert "RuntimeError: on purpose" in caplog.text


def limits(monkeypatch: pytest.MonkeyPatch, kind: str, most: int, of_one: int) -> None:
    names = {
        "streams": ("MAX_STREAMS", None),
        "calls": ("_SHORT_CALLS", "_PEER_SHORT_CALLS"),
        "health calls": ("_HEALTH_CALLS", "_PEER_HEALTH_CALLS"),
    }[kind]
    monkeypatch.setattr(rpc_server, names[0], most)
    if names[1] is not None:
        monkeypatch.setattr(rpc_server, names[1], of_one)


METHODS = {
    "streams": f"/{SERVICE}/StreamBatches",
    "calls": GET,
    "health calls": "/grpc.health.v1.Health/Check",
}


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("whose", ["the server", "127.0.0.1"])
def test_a_call_beyond_its_limit_is_refused_and_the_other_kinds_are_not(
    start: Any,
    hanging: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    whose: str,
) -> None:
    most, of_one = (2, 9) if whose == "the server" else (9, 2)
    limits(monkeypatch, kind, most, of_one)
    live = start(peer_streams=of_one if kind == "streams" else 9)
    limit = {
        "streams": live.server._feeds,
        "calls": live.server._short,
        "health calls": live.server._watches,
    }[kind]
    with grpc.insecure_channel(live.address) as channel:
        calls = hanging(channel)
        for _ in range(2):
            calls.open(METHODS[kind])
        eventually(lambda: len(limit) == 2, "both are being answered")
        with pytest.raises(grpc.RpcError) as caught:
            next(calls.open(METHODS[kind]))
        assert caught.value.code() is FULL
        assert caught.value.details() == f"{whose} has 2 {kind} open already"
        # The other kinds have room of their own: nothing comes, for nothing was asked.
        others = [method for name, method in METHODS.items() if name != kind]
        for method in others:
            calls.open(method)
        every = (live.server._feeds, live.server._short, live.server._watches)
        eventually(lambda: sum(map(len, every)) == 4, "the others are being answered")
        # One that ends makes room.
        calls.calls[0].cancel()
        eventually(lambda: len(limit) == 1, "its place is free")
        calls.open(METHODS[kind])
        eventually(lambda: len(limit) == 2, "another has it")


def test_a_call_while_the_server_stops_is_refused_as_worth_another_try(
    start: Any,
) -> None:
    live = start()
    with grpc.insecure_channel(live.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status
        # As `stop` does first, before it tells peers to open no more calls.
        live.server._stopping = True
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
        live.server._stopping = False
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == "the server is shutting down"


def test_a_connection_that_is_taken_as_the_server_begins_to_stop_is_cut(
    start: Any, dial: Dial, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start()
    wire = live.server._wire

    def late(accepted: socket.socket) -> Any:
        live.server._stopping = True
        return wire(accepted)

    with monkeypatch.context() as patch:
        patch.setattr(live.server, "_wire", late)
        connection = dial(live.server.port)
        with contextlib.suppress(ConnectionError):
            while connection.recv(1 << 12):
                pass
    eventually(lambda: not len(live.server._places), "it has ended")
    live.server._stopping = False


def test_a_connection_while_the_server_stops_is_refused(start: Any, dial: Dial) -> None:
    live = start()
    live.server._stopping = True
    assert not is_taken(dial(live.server.port))
    live.server._stopping = False
    assert is_taken(dial(live.server.port))
