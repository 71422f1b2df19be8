"""The limits of a server: streams, short calls, health calls and connections."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from infeed.shared.errors import AuthenticationError, ServerUnavailableError
from infeed_server.rpc import limits
from infeed_server.rpc import server as rpc_server
from infeed_server.rpc.limits import Limits, max_connections
from infeed_server.rpc.server import SERVICE

GET = f"/{SERVICE}/GetPipeline"


class OpenCalls:
    """Calls that stay open until `end`."""

    def __init__(self, channel: grpc.Channel, end: threading.Event) -> None:
        self._channel = channel
        self._end = end
        self.calls: list[Any] = []

    def open(self, method: str) -> Any:
        """Opens a call without a request message."""
        requests = (b"" for _ in iter(self._end.wait, True))
        self.calls.append(self._channel.stream_stream(method)(requests, timeout=120))
        return self.calls[-1]


@pytest.fixture
def open_calls() -> Iterator[Callable[[grpc.Channel], OpenCalls]]:
    """Opens calls on a channel, whose requests end with the test."""
    end = threading.Event()
    started: list[OpenCalls] = []  # gRPC cancels a call that nothing refers to

    def make(channel: grpc.Channel) -> OpenCalls:
        started.append(OpenCalls(channel, end))
        return started[-1]

    yield make
    end.set()


METHODS = {
    "streams": f"/{SERVICE}/StreamBatches",
    "calls": GET,
    "health calls": "/grpc.health.v1.Health/Check",
}


def test_call_beyond_its_limit_is_refused(
    start: Any, open_calls: Any, eventually: Any, error_of: Any
) -> None:
    live = start(limits=Limits(max_streams=2))
    counts = live.server._admission
    with grpc.insecure_channel(live.address) as channel:
        calls = open_calls(channel)
        for _ in range(2):
            calls.open(METHODS["streams"])
        eventually(lambda: counts.open_calls("streams") == 2, "both are open")
        with pytest.raises(grpc.RpcError) as caught:
            next(calls.open(METHODS["streams"]))
        code, error = error_of(caught.value)
        assert code == "RESOURCE_EXHAUSTED"
        assert isinstance(error, ServerUnavailableError)  # which clients retry
        assert error.metadata == {"limit": "streams"}
        calls.open(GET)  # other kinds have their own limits
        eventually(lambda: counts.open_calls("calls") == 1, "it is open")
        calls.calls[0].cancel()
        eventually(lambda: counts.open_calls("streams") == 1, "it is no longer counted")
    assert live.reported("infeed_refused", "streams") == 1


@pytest.mark.parametrize("method", [METHODS["streams"], GET, "/a/b"])
def test_calls_without_a_token_that_send_nothing_hold_no_thread(
    start: Any, open_calls: Any, method: str
) -> None:
    live = start(authenticator=Refusing())
    with grpc.insecure_channel(live.address) as channel:
        calls = open_calls(channel)
        for _ in range(300):
            calls.open(method)
        for call in calls.calls:
            with pytest.raises(grpc.RpcError) as caught:
                next(call)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert channel.unary_unary(METHODS["health calls"])(b"", timeout=60)
    assert len(live.server._pool._threads) < 50


class Refusing:
    """Knows no token."""

    def authenticate(self, authorization: str | None, client: str = "") -> Any:
        raise AuthenticationError("unknown token")


def test_connection_beyond_the_limit_is_closed(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_server, "max_connections", lambda: 2)
    address = ("127.0.0.1", start().server.port)
    with socket.create_connection(address, 60) as one, socket.create_connection(address, 60) as two:
        assert one.recv(1)  # the server's settings
        assert two.recv(1)
        with socket.create_connection(address, 60) as third:
            assert not read_or_reset(third)
        one.close()
        while True:  # until the server has seen the end
            with socket.create_connection(address, 60) as fourth:
                if read_or_reset(fourth):
                    break


def read_or_reset(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    ("limit", "connections"),
    [(1024, 768), (40, 30), (20_000, 1024), (resource.RLIM_INFINITY, 1024)],
)
def test_descriptors_are_kept_for_data(
    monkeypatch: pytest.MonkeyPatch, limit: int, connections: int
) -> None:
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (limit, limit))
    assert max_connections() == connections
