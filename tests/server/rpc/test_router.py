"""gRPC handlers behind a router, called by grpcio and by plain HTTP/2 clients."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.harness.waiting import wait_until

from infeed_server.http2.connection import Connection
from infeed_server.http2.listener import Listener
from infeed_server.http2.socket import ServerSocket
from infeed_server.http2.stream import Stream
from infeed_server.rpc import health
from infeed_server.rpc import router as router_module
from infeed_server.rpc.call import CallCancelledError, ServerCall, StatusError, grpc_frames
from infeed_server.rpc.router import Router


class RouterServer:
    """A server with only a `Router`."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._pool = ThreadPoolExecutor(40)
        self._connections: list[tuple[Connection, threading.Thread]] = []
        self.refuses_calls = False
        self.listener = Listener("127.0.0.1:0")
        self.listener.start(self._on_connection)
        self.address = f"127.0.0.1:{self.listener.port}"

    def drain(self) -> None:
        for connection, _ in self._connections:
            connection.drain()

    def close(self) -> None:
        self.listener.close()
        for connection, thread in self._connections:
            connection.abort()
            thread.join(60)
            assert not thread.is_alive()
        self._pool.shutdown()

    def _on_connection(self, accepted: socket.socket, peer: str) -> None:
        connection = Connection(ServerSocket(accepted, 60), peer, self._on_stream)
        thread = threading.Thread(target=connection.run, daemon=True)
        self._connections.append((connection, thread))
        thread.start()

    def _on_stream(self, stream: Stream) -> None:
        call = ServerCall(stream)
        call.admit(authenticated=True)
        if self.refuses_calls:
            self._router.refuse(call, StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room"))
        else:
            self._pool.submit(self._router.handle, call)


class Methods(grpc.GenericRpcHandler):
    """Methods `/t/<name>`, one for each function."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.streaming = threading.Event()

    def service(self, details: Any) -> Any:
        service, _, _ = str(details.method).rpartition("/")
        if service != "/t":
            return None
        rpc = grpc.method_handlers_generic_handler("t", self._all())
        return rpc.service(details)

    def _all(self) -> dict[str, Any]:
        def double(request: bytes, context: Any) -> bytes:
            return request * 2

        def join(requests: Iterator[bytes], context: Any) -> bytes:
            return b"+".join(requests)

        def count(request: bytes, context: Any) -> Iterator[bytes]:
            for number in range(int(request)):
                yield b"%d" % number

        def echo(requests: Iterator[bytes], context: Any) -> Iterator[Any]:
            for request in requests:
                yield grpc_frames([request], [b"and", b" more"])

        def fail(request: bytes, context: Any) -> bytes:
            raise ValueError("a secret")

        def abort(request: bytes, context: Any) -> bytes:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"zu groß: {request.decode()}")

        def late(request: bytes, context: Any) -> Iterator[bytes]:
            yield b"one"
            context.abort(grpc.StatusCode.ABORTED, "after one")

        def endless(request: bytes, context: Any) -> Iterator[bytes]:
            context.add_callback(lambda: self.closed.append("call"))
            try:
                while True:
                    self.streaming.set()
                    yield bytes(1 << 16)
            finally:
                self.closed.append("generator")

        def unencodable(request: bytes, context: Any) -> bytes:
            context.set_details(5)
            return b""

        def reads(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            yield b"begun"
            try:
                list(requests)
            except CallCancelledError:
                self.closed.append("reader")
                raise

        def unary(function: Any, parse: Any = None, serialize: Any = bytes) -> Any:
            return grpc.unary_unary_rpc_method_handler(function, parse, serialize)

        def stream(function: Any) -> Any:
            return grpc.unary_stream_rpc_method_handler(function, None, bytes)

        return {
            "double": unary(double),
            "text": unary(double, bytes.decode, str.encode),
            "parsed": unary(double, health_pb2.HealthCheckRequest.FromString),
            "join": grpc.stream_unary_rpc_method_handler(join, None, bytes),
            "count": stream(count),
            "echo": grpc.stream_stream_rpc_method_handler(echo),
            "fail": unary(fail),
            "abort": unary(abort),
            "late": stream(late),
            "endless": stream(endless),
            "unencodable": unary(unencodable),
            "reads": grpc.stream_stream_rpc_method_handler(reads, None, bytes),
        }


@pytest.fixture
def methods() -> Methods:
    return Methods()


@pytest.fixture
def router(methods: Methods) -> Router:
    return Router(methods)


@pytest.fixture
def server(router: Router) -> Iterator[RouterServer]:
    server = RouterServer(router)
    yield server
    server.close()


@pytest.fixture
def channel(server: RouterServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as channel:
        yield channel


def call_error(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code().name, error.details()


def test_all_kinds_of_calls_are_handled(channel: grpc.Channel) -> None:
    assert channel.unary_unary("/t/double")(b"ab", timeout=60) == b"abab"
    assert channel.unary_unary("/t/double")(b"", timeout=60) == b""
    assert channel.unary_unary("/t/text")("grün".encode(), timeout=60) == "grüngrün".encode()
    assert channel.stream_unary("/t/join")(iter([b"a", b"b"]), timeout=60) == b"a+b"
    assert channel.stream_unary("/t/join")(iter([]), timeout=60) == b""
    assert list(channel.unary_stream("/t/count")(b"3", timeout=60)) == [b"0", b"1", b"2"]
    assert list(channel.unary_stream("/t/count")(b"0", timeout=60)) == []
    responses = channel.stream_stream("/t/echo")(iter([b"x", b""]), timeout=60)
    assert list(responses) == [b"x", b"and more", b"", b"and more"]


def test_concurrent_calls_on_one_connection(channel: grpc.Channel) -> None:
    double = channel.unary_unary("/t/double")
    calls = [double.future(bytes([number]) * 30_000, timeout=60) for number in range(60)]
    assert [call.result() for call in calls] == [bytes([number]) * 60_000 for number in range(60)]


@pytest.mark.parametrize(
    ("method", "message", "expected"),
    [
        ("/t/none", b"", ("UNIMPLEMENTED", "unknown method '/t/none'")),
        ("/none/double", b"", ("UNIMPLEMENTED", "unknown method '/none/double'")),
        ("/t/abort", b"x", ("OUT_OF_RANGE", "zu groß: x")),
        ("/t/fail", b"", ("UNKNOWN", "ValueError")),
        ("/t/count", b"many", ("UNKNOWN", "ValueError")),
        ("/t/double", bytes(65537), ("RESOURCE_EXHAUSTED", "message of 65537 bytes: at most")),
        ("/t/parsed", b"\xff", ("INTERNAL", "a message of 1 bytes cannot be parsed")),
    ],
)
def test_failed_calls_end_with_a_status(
    channel: grpc.Channel, method: str, message: bytes, expected: tuple[str, str]
) -> None:
    code, details = call_error(lambda: channel.unary_unary(method)(message, timeout=60))
    assert code == expected[0]
    assert details.startswith(expected[1])
    assert channel.unary_unary("/t/double")(b"x", timeout=60) == b"xx"


def test_handler_error_is_logged_but_not_sent(
    channel: grpc.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    assert call_error(lambda: channel.unary_unary("/t/fail")(b"", timeout=60)) == (
        "UNKNOWN",
        "ValueError",
    )
    assert "a secret" in caplog.text
    assert "/t/fail" in caplog.text


def test_call_that_cannot_be_ended_is_reset(
    channel: grpc.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    code, _ = call_error(lambda: channel.unary_unary("/t/unencodable")(b"", timeout=60))
    assert code == "INTERNAL"
    assert "a call could not be ended" in caplog.text


def test_error_after_a_response(channel: grpc.Channel) -> None:
    call = channel.unary_stream("/t/late")(b"", timeout=60)
    assert next(call) == b"one"
    assert call_error(lambda: next(call)) == ("ABORTED", "after one")


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_message_is_read(server: RouterServer, compression: grpc.Compression) -> None:
    with grpc.insecure_channel(server.address, compression=compression) as channel:
        response = channel.unary_unary("/t/double")(bytes(9000), timeout=60)
        assert response == bytes(18000)
        call = channel.unary_unary("/t/double")
        code, details = call_error(lambda: call(bytes(1 << 20), timeout=60))
    assert (code, details) == (
        "RESOURCE_EXHAUSTED",
        "message of more than 65536 bytes: at most 65536 are allowed",
    )


@pytest.mark.parametrize(("messages", "problem"), [([], "no"), ([b"1", b"2"], "more than one")])
def test_unary_call_has_one_request(
    channel: grpc.Channel, messages: list[bytes], problem: str
) -> None:
    call = channel.stream_stream("/t/double")(iter(messages), timeout=60)
    error = ("UNIMPLEMENTED", f"a unary call with {problem} request message")
    assert call_error(lambda: next(call)) == error


def test_unary_request_that_does_not_end_is_refused(
    channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_module, "_REQUEST_TIMEOUT_SECONDS", 0.05)
    is_over = threading.Event()

    def messages() -> Iterator[bytes]:
        yield b"1"
        is_over.wait(60)

    call = channel.stream_stream("/t/double")(messages(), timeout=60)
    code, details = call_error(lambda: next(call))
    is_over.set()
    assert (code, "did not end in time" in details) == ("DEADLINE_EXCEEDED", True)


def test_refused_call_ends_with_its_status(server: RouterServer, channel: grpc.Channel) -> None:
    server.refuses_calls = True
    assert call_error(lambda: channel.unary_unary("/t/double")(b"", timeout=60)) == (
        "RESOURCE_EXHAUSTED",
        "no room",
    )


def test_authentication_failures_are_logged_truncated(caplog: pytest.LogCaptureFixture) -> None:
    class Refused:
        headers = {":method": "POST", "content-type": "application/grpc"}  # noqa: RUF012 - of one test
        peer = "10.0.0.1:5"

        def send_headers(self, headers: Any, *, end: bool) -> None: ...

    stream: Any = Refused()
    call = ServerCall(stream)
    with caplog.at_level("INFO"):
        Router().refuse(call, StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room"))
        assert not caplog.records
        Router().refuse(call, StatusError(grpc.StatusCode.UNAUTHENTICATED, "t" * 9000))
    assert [record.getMessage() for record in caplog.records] == [
        "10.0.0.1:5 was refused: " + "t" * 500
    ]


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_handler_ends_when_its_client_is_lost(
    server: RouterServer, methods: Methods, how: str
) -> None:
    channel = grpc.insecure_channel(server.address)
    call = channel.unary_stream("/t/endless")(b"", timeout=60)
    assert next(call)
    if how == "cancel":
        call.cancel()
        wait_until(lambda: sorted(methods.closed) == ["call", "generator"], "the handler ends")
    channel.close()
    wait_until(lambda: sorted(methods.closed) == ["call", "generator"], "the handler ends")


def test_reading_handler_ends_when_its_client_is_lost(
    channel: grpc.Channel, methods: Methods
) -> None:
    more = threading.Event()
    requests = (b"" for _ in iter(more.wait, True))
    call = channel.stream_stream("/t/reads")(requests, timeout=60)
    assert next(call) == b"begun"
    call.cancel()
    wait_until(lambda: methods.closed == ["reader"], "the handler ends")
    more.set()


def test_calls_outlive_a_drain(server: RouterServer, channel: grpc.Channel) -> None:
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    call = channel.stream_stream("/t/echo")(iter(requests.get, b"end"), timeout=60)
    requests.put(b"before")
    assert [next(call), next(call)] == [b"before", b"and more"]
    server.drain()
    # On another connection, because the first one got a GOAWAY.
    assert channel.unary_unary("/t/double")(b"x", timeout=60) == b"xx"
    requests.put(b"after")
    assert [next(call), next(call)] == [b"after", b"and more"]
    requests.put(b"end")
    assert list(call) == []


def http_response(address: str, *headers: tuple[str, str]) -> dict[str, str]:
    """Returns the response headers to a plain HTTP/2 request."""
    host, _, port = address.rpartition(":")
    protocol = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    protocol.initiate_connection()
    common = {":method": "POST", ":scheme": "http", ":authority": "s", ":path": "/t/double"}
    protocol.send_headers(1, list({**common, **dict(headers)}.items()), end_stream=True)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(protocol.data_to_send())
        while data := connection.recv(1 << 16):
            for event in protocol.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    return dict(event.headers)
    raise AssertionError("no answer")


@pytest.mark.parametrize(
    ("headers", "response"),
    [
        ({":method": "GET"}, {":status": "405", "allow": "POST"}),
        ({":method": "PUT", "content-type": "application/grpc"}, {":status": "405"}),
        ({}, {":status": "415"}),
        ({"content-type": "text/html"}, {":status": "415"}),
        ({"content-type": "application/grpc-web"}, {":status": "415"}),
        ({"content-type": "application/grpc"}, {":status": "200", "grpc-status": "12"}),
        ({"content-type": "application/grpc+proto"}, {":status": "200"}),
        ({"content-type": "application/grpc;x=y"}, {":status": "200"}),
    ],
)
def test_other_http_requests_get_an_http_status(
    server: RouterServer, headers: dict[str, str], response: dict[str, str]
) -> None:
    received = http_response(server.address, *headers.items())
    assert {name: received.get(name) for name in response} == response


def test_unknown_method_name_is_truncated(channel: grpc.Channel) -> None:
    _, details = call_error(lambda: channel.unary_unary("/t/" + "x" * 7000)(b"", timeout=60))
    assert len(details) < 300


def test_health_checks_and_watches(router: Router, channel: grpc.Channel) -> None:
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, router)
    kinds = health_pb2.HealthCheckResponse
    servicer.set("one", kinds.SERVING)
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="one")
    assert stub.Check(request, timeout=60).status == kinds.SERVING
    none = health_pb2.HealthCheckRequest(service="none")
    assert call_error(lambda: stub.Check(none, timeout=60))[0] == "NOT_FOUND"
    watch, other = stub.Watch(request, timeout=60), stub.Watch(none, timeout=60)
    assert next(watch).status == kinds.SERVING
    assert next(other).status == kinds.SERVICE_UNKNOWN
    servicer.set("one", kinds.NOT_SERVING)
    assert next(watch).status == kinds.NOT_SERVING
    servicer.set("one", kinds.SERVING)
    assert next(watch).status == kinds.SERVING
    servicer.shut_down()
    servicer.set("one", kinds.SERVING)
    assert next(watch).status == kinds.NOT_SERVING
    assert stub.Check(request, timeout=60).status == kinds.NOT_SERVING


def test_health_watch_ends_with_its_call() -> None:
    class Context:
        active = True
        callbacks: list[Callable[[], None]]

        def __init__(self) -> None:
            self.callbacks = []

        def add_callback(self, callback: Callable[[], None]) -> bool:
            self.callbacks.append(callback)
            return True

        def is_active(self) -> bool:
            return self.active

    servicer, context = health.HealthServicer(), Context()
    state_before = {name: repr(value) for name, value in vars(servicer).items()}
    responses: list[Any] = []
    request = health_pb2.HealthCheckRequest(service="x" * 1000)
    watching = threading.Thread(target=lambda: responses.extend(servicer.Watch(request, context)))
    watching.start()
    wait_until(lambda: responses or context.callbacks, "the watch has begun")
    context.active = False
    context.callbacks[0]()
    watching.join(60)
    assert not watching.is_alive()
    # Nothing is kept of a name that was only watched.
    assert {name: repr(value) for name, value in vars(servicer).items()} == state_before
