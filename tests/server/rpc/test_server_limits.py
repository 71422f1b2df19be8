"""The limits of a server: connections, streams, short calls and health calls."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from infeed.errors import InvalidRequestError, ServerUnavailableError
from infeed.v1 import feed_service_pb2
from infeed_server.http2.frame_budget import UNADMITTED_RATE
from infeed_server.rpc import admission, host_pace, resources
from infeed_server.rpc import server as rpc_server
from infeed_server.rpc.admission import Admission, CallRefusedError
from infeed_server.rpc.host_pace import HostPaces
from infeed_server.rpc.limits import Limits
from infeed_server.rpc.server import SERVICE
from infeed_server.serving.auth import AllowAll

GET = f"/{SERVICE}/GetPipeline"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"

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
    start: Any, connect: Connect, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    live = start(limits=Limits(connections=2))
    port = live.server.port
    first = connect(port, "127.0.0.1")
    assert is_served(first)
    assert is_served(connect(port, "127.0.0.2"))
    with caplog.at_level("INFO"):
        assert not is_served(connect(port, "127.0.0.3"))
    assert "was refused: the server has 2 connections open already" in caplog.text
    first.close()
    eventually(
        lambda: len(live.server._admission.connections) == 1, "the first is no longer counted"
    )
    assert is_served(connect(port, "127.0.0.3"))


def test_connection_beyond_the_host_limit_is_refused(
    start: Any, connect: Connect, eventually: Any
) -> None:
    live = start(limits=Limits(peer_connections=2))
    port = live.server.port
    first = connect(port)
    assert is_served(first)
    assert is_served(connect(port))
    assert not is_served(connect(port))
    assert is_served(connect(port, "127.0.0.2"))
    first.close()
    eventually(
        lambda: len(live.server._admission.connections) == 2, "the first is no longer counted"
    )
    assert is_served(connect(port))


def test_failed_connection_is_not_counted(
    start: Any, connect: Connect, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start()
    failed: list[int] = []

    def fail(connection: rpc_server.Connection) -> None:
        failed.append(len(live.server._admission.connections))
        connection._socket.close()
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(rpc_server.Connection, "run", fail)
        connect(live.server.port)
        eventually(lambda: failed == [1], "it has failed while counted")
        eventually(lambda: not len(live.server._admission.connections), "it is no longer counted")
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
    assert len(live.server._admission.connections) == 1
    assert "RuntimeError: on purpose" in caplog.text


METHODS = {
    "streams": f"/{SERVICE}/StreamBatches",
    "calls": GET,
    "health calls": "/grpc.health.v1.Health/Check",
}


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("whose", ["the server", "127.0.0.1"])
def test_call_beyond_its_limit_is_refused(
    start: Any, open_calls: Any, eventually: Any, error_of: Any, kind: str, whose: str
) -> None:
    name = kind.replace(" ", "_")
    mine = {name: 2} if whose == "the server" else {f"peer_{name}": 2}
    live = start(limits=Limits(**mine))
    counts = live.server._admission
    limits = {
        "streams": counts.streams,
        "calls": counts.calls,
        "health calls": counts.health_calls,
    }
    with grpc.insecure_channel(live.address) as channel:
        calls = open_calls(channel)
        for _ in range(2):
            calls.open(METHODS[kind])
        eventually(lambda: len(limits[kind]) == 2, "both are open")
        with pytest.raises(grpc.RpcError) as caught:
            next(calls.open(METHODS[kind]))
        code, error = error_of(caught.value)
        assert code == "RESOURCE_EXHAUSTED"
        assert isinstance(error, ServerUnavailableError)  # which clients retry
        assert error.metadata["limit"] == kind
        assert error.metadata.get("client") == (None if whose == "the server" else whose)
        assert error.message.startswith(f"{whose} has 2 {kind} open already: ")
        # Other kinds have their own limits.
        for method in (method for other, method in METHODS.items() if other != kind):
            calls.open(method)
        eventually(lambda: sum(map(len, limits.values())) == 4, "the others are open")
        # A call that ends makes room.
        calls.calls[0].cancel()
        eventually(lambda: len(limits[kind]) == 1, "it is no longer counted")
        calls.open(METHODS[kind])
        eventually(lambda: len(limits[kind]) == 2, "another call is open")
    reason = "streams" if kind == "streams" else "calls"
    assert refused(live, reason) == 1


def refused(live: Any, reason: str) -> float | None:
    labels = {"reason": reason}
    return live.metrics.registry.get_sample_value("infeed_refused_total", labels)


class ByName:
    """Takes the authorization for a token's name."""

    def authenticate(self, authorization: str | None, client: str = "") -> Any:
        del client
        return AllowAll(authorization or "")


def test_connections_behind_one_host_count_by_token(start: Any, error_of: Any) -> None:
    live = start(authenticator=ByName(), limits=Limits(peer_connections=1))
    options = [("grpc.use_local_subchannel_pool", 1)]

    def get(channel: grpc.Channel, token: str) -> None:
        message = feed_service_pb2.GetPipelineRequest(name="held").SerializeToString()
        channel.unary_unary(GET)(message, timeout=60, metadata=[("authorization", token)])

    with (
        grpc.insecure_channel(live.address, options) as one,
        grpc.insecure_channel(live.address, options) as two,
        grpc.insecure_channel(live.address, options) as three,
    ):
        get(one, "a")
        get(two, "b")
        with pytest.raises(grpc.RpcError) as caught:
            get(three, "a")
        code, error = error_of(caught.value)
        assert code == "RESOURCE_EXHAUSTED"
        assert error.metadata == {"limit": "connections", "client": "a"}
        get(three, "c")
        get(one, "b")  # a proxy's connection counts for the client that came first
    assert refused(live, "connections") == 1


def test_calls_behind_one_host_count_by_certificate() -> None:
    counts = Admission(Limits(peer_streams=1), AllowAll(), requires_tls=True)
    connection = counts.open_connection("10.0.0.1:5", 3)

    def open_stream(certificate: bytes) -> Any:
        call: Any = SimpleNamespace(
            encrypted=True,
            has_all_headers=True,
            client_certificate=certificate,
            method=METHODS["streams"],
            authorization=None,
            peer=lambda: "10.0.0.1:5",
            admit=lambda *, authenticated: None,
        )
        return counts.open_call(call, connection)

    close = open_stream(b"one")
    open_stream(b"two")
    with pytest.raises(CallRefusedError, match=r"the certificate [0-9a-f]{16} has 1 streams open"):
        open_stream(b"one")
    close()
    open_stream(b"one")


def test_failing_authenticator_fails_its_call_alone(
    start: Any, error_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def authenticate(self, authorization: str | None, client: str = "") -> Any:
            raise RuntimeError("on purpose")

    live = start(authenticator=Failing())
    with grpc.insecure_channel(live.address) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60)
        next(watch)
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(GET)(b"", timeout=60)
        assert error_of(caught.value)[0] == "INTERNAL"
        assert watch.is_active()
        watch.cancel()
    assert "RuntimeError: on purpose" in caplog.text


def test_client_that_is_short_of_files_is_refused(
    start: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start()
    with monkeypatch.context() as patch:
        patch.setattr(resources.resource, "getrlimit", lambda kind: (4, 4))
        assert not is_served(connect(live.server.port))
    assert is_served(connect(live.server.port))
    assert refused(live, "descriptors") == 1


def test_stream_is_refused_before_threads_run_out(
    start: Any, connect: Connect, error_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start()
    left = resources._THREAD_RESERVE + 1
    monkeypatch.setattr(resources.cgroup, "pids_left", lambda: left)
    with grpc.insecure_channel(live.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            next(channel.unary_stream(METHODS["streams"])(b"", timeout=60))
        code, error = error_of(caught.value)
        assert code == "RESOURCE_EXHAUSTED"
        assert f"only {left} more threads" in error.message
        channel.unary_unary(METHODS["health calls"])(b"", timeout=60)  # it needs no more threads
    assert refused(live, "threads") == 1
    left = resources._THREAD_RESERVE - 1
    assert not is_served(connect(live.server.port))


def test_metadata_that_is_too_large_fails_its_call_alone(start: Any, error_of: Any) -> None:
    live = start()
    with grpc.insecure_channel(live.address) as channel:
        stub = channel.unary_unary(METHODS["health calls"])
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60)
        next(watch)
        with pytest.raises(grpc.RpcError) as caught:
            stub(b"", timeout=60, metadata=[(f"x-{number}", "y" * 1000) for number in range(20)])
        code, error = error_of(caught.value)
        assert code == "RESOURCE_EXHAUSTED"
        assert isinstance(error, InvalidRequestError)  # which clients do not retry
        stub(b"", timeout=60)
        watch.cancel()
    assert len(live.server._connections) <= 1
    assert refused(live, "headers") == 1


def test_connections_of_a_host_share_its_pace(
    start: Any, connect: Connect, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    live = start()
    monkeypatch.setattr(live.server._admission, "_paces", HostPaces(lambda: 100.0))
    monkeypatch.setattr(live.server._admission._stopping, "wait", delays.append)
    monkeypatch.setattr(host_pace, "BURST_SECONDS", 0.1)
    port = live.server.port
    assert is_served(connect(port))
    assert delays == []
    for count in range(1, 4):
        with contextlib.suppress(ConnectionError):
            connect(port).sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS * 5000)
        eventually(lambda n=count: refused(live, "flood") == n, "the flood has ended")
    frames = 4 * admission._CONNECTION_FRAMES + 3 * UNADMITTED_RATE.burst
    assert max(delays) > 0.8 * frames / host_pace.FRAMES_PER_SECOND - host_pace.BURST_SECONDS > 0
    delays.clear()
    assert is_served(connect(port, "127.0.0.2"))
    assert delays == []


def test_connection_during_stop_is_refused(start: Any, connect: Connect) -> None:
    live = start()
    live.server._admission.stop()
    assert not is_served(connect(live.server.port))
    live.server._admission._stopping.clear()
    assert is_served(connect(live.server.port))
