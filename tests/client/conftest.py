"""Servers for client tests: a gRPC server of fake pipelines, and scripted HTTP/2 peers."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import numpy as np
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from tests.client.waiting import infeed_threads, leave_out_running_threads
from tests.harness.listener import Listener
from tests.harness.ports import ReservedPort

from infeed.shared.errors import DOMAIN, InfeedError, PipelineNotFoundError
from infeed.testing import FakeTransport
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2


@pytest.fixture(autouse=True)
def earlier_threads() -> None:
    leave_out_running_threads()


def to_status(error: InfeedError) -> Any:
    """Converts an error as infeed's server does, with the official classes."""
    detail = any_pb2.Any()
    detail.Pack(
        error_details_pb2.ErrorInfo(
            reason=error.reason, domain=DOMAIN, metadata=dict(error.metadata)
        )
    )
    code = code_pb2.Code.Value(error.code)
    status = status_pb2.Status(code=code, message=error.message, details=[detail])
    return rpc_status.to_status(status)


_OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),  # accept the client's pings
]


class Server:
    """Serves fakes over gRPC; `stop` aborts all connections, `start` listens on the same port."""

    def __init__(self, *pipelines: Any, address: str = "127.0.0.1:0") -> None:
        self.pipelines = {fake.spec.name: fake for fake in pipelines}
        self.address = address
        self.opens: list[stream_pb2.StreamOpen] = []
        self.broken: dict[str, str] = {}
        self._server: grpc.Server | None = None
        self.start()

    def start(self) -> None:
        self._pool = ThreadPoolExecutor(16)
        self._server = grpc.server(self._pool, options=_OPTIONS)
        handlers = {
            "ListPipelines": grpc.unary_unary_rpc_method_handler(
                self._list,
                service.ListPipelinesRequest.FromString,
                service.ListPipelinesResponse.SerializeToString,
            ),
            "GetPipeline": grpc.unary_unary_rpc_method_handler(
                self._get,
                service.GetPipelineRequest.FromString,
                service.GetPipelineResponse.SerializeToString,
            ),
            "DescribeSlots": grpc.unary_unary_rpc_method_handler(
                lambda request, _: self.pipelines[request.run.pipeline].call("", request),
                service.DescribeSlotsRequest.FromString,
                service.DescribeSlotsResponse.SerializeToString,
            ),
            "StreamBatches": grpc.stream_stream_rpc_method_handler(
                self._stream, stream_pb2.StreamBatchesRequest.FromString, None
            ),
        }
        name = "infeed.v1.FeedService"
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(name, handlers)]
        )
        port = self._server.add_insecure_port(self.address)
        if not self.address.startswith("unix:"):
            self.address = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None
            self._pool.shutdown(wait=False)

    def _list(
        self, request: service.ListPipelinesRequest, context: grpc.ServicerContext
    ) -> service.ListPipelinesResponse:
        first = int(request.page_token or 0)
        last = first + 2  # small pages, for any request
        names = sorted(self.pipelines)
        return service.ListPipelinesResponse(
            pipelines=[self.pipelines[name].spec.to_proto() for name in names[first:last]],
            next_page_token=str(last) if last < len(names) else "",
            broken=[service.BrokenPipeline(name=n, reason=why) for n, why in self.broken.items()],
        )

    def _get(
        self, request: service.GetPipelineRequest, context: grpc.ServicerContext
    ) -> service.GetPipelineResponse:
        if request.name not in self.pipelines:
            known = ", ".join(sorted(self.pipelines))
            error = PipelineNotFoundError(f"no pipeline {request.name!r}; known: {known}")
            context.abort_with_status(to_status(error))
        return service.GetPipelineResponse(pipeline=self.pipelines[request.name].spec.to_proto())

    def _stream(
        self, requests: Iterator[stream_pb2.StreamBatchesRequest], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        first = next(requests)
        self.opens.append(first.open)

        def all_requests() -> Iterator[stream_pb2.StreamBatchesRequest]:
            yield first
            try:
                yield from requests
            except grpc.RpcError:
                return  # the client has disconnected

        try:
            yield from self.pipelines[first.open.pipeline].answer(all_requests())
        except InfeedError as error:
            context.abort_with_status(to_status(error))


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers on reserved ports, and stops them at the end of the test."""
    with ExitStack() as stack:

        def start(*pipelines: Any, address: str = "") -> Server:
            address = address or stack.enter_context(ReservedPort()).address
            server = Server(*pipelines, address=address)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def arrays() -> dict[str, Any]:
    """50 samples whose pixels hold their index."""
    image = np.zeros((50, 3, 4), np.uint8)
    image += np.arange(50, dtype=np.uint8)[:, None, None]
    return {"image": image, "label": np.arange(50)}


@pytest.fixture
def fake(arrays: dict[str, Any]) -> FakeTransport:
    return FakeTransport(arrays, batch_size=4, seed=3)


@pytest.fixture
def status_of() -> Callable[[InfeedError], Any]:
    return to_status


GRPC_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


class PeerConnection:
    """The server's side of one connection: h2 for valid frames, raw bytes for the others."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.machine = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.headers: dict[str, str] = {}
        self.body = b""
        """The body of the request."""
        self.events: list[h2.events.Event] = []
        self.over = False
        """Whether the client has closed the connection."""

    def greet(self, settings: dict[Any, int] | None = None) -> None:
        """Sends the HTTP/2 preface and waits for the headers of the request."""
        if settings:
            self.machine.update_settings(settings)
            self.machine.clear_outbound_data_buffer()
            self.machine.local_settings.acknowledge()
        self.machine.initiate_connection()
        self.flush()
        self.until(lambda: self.headers)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def flush(self) -> None:
        self.send(self.machine.data_to_send())

    def answer(self, headers: Any = GRPC_HEADERS, *, end: bool = False) -> None:
        """Sends headers, or trailers, unless the client has reset the stream already."""
        with suppress(h2.exceptions.StreamClosedError):
            self.machine.send_headers(1, headers, end_stream=end)
        self.flush()

    def data(self, data: bytes, flags: int = 0, stream: int = 1) -> None:
        """Sends one DATA frame, even against flow control."""
        self.send(self.frame(0, flags, stream, data))

    @staticmethod
    def frame(kind: int, flags: int, stream: int, body: bytes, length: int | None = None) -> bytes:
        size = len(body) if length is None else length
        head = size.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
        return head + body

    def until(self, condition: Callable[[], Any], *, credit: bool = True) -> None:
        """Receives frames until the condition holds or the client has closed the connection."""
        while not condition() and not self.over:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            self.over = not data
            for event in self.machine.receive_data(data):
                self.events.append(event)
                if isinstance(event, h2.events.RequestReceived):
                    self.headers = dict(event.headers)
                elif isinstance(event, h2.events.DataReceived):
                    self.body += event.data
                    if credit:
                        self.machine.acknowledge_received_data(len(event.data), event.stream_id)
            if not self.over:
                self.flush()

    def until_closed(self) -> None:
        self.until(lambda: False)

    def seen(self, kind: type[h2.events.Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


Script = Callable[[PeerConnection], None]


class Peer(Listener):
    """Listens on loopback and runs a script as the server of each connection."""

    def __init__(self, script: Script) -> None:
        super().__init__(lambda connection: script(PeerConnection(connection)))

    stop = Listener.close


@pytest.fixture(scope="module")
def few_objects() -> None:
    """Keeps existing objects out of garbage collection, which is slow with TensorFlow loaded."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def peer(few_objects: None) -> Iterator[Callable[[Script], str]]:
    """Starts peers and returns their addresses. An error in a script fails the test, and so does a
    leaked socket or thread."""
    peers: list[Peer] = []

    def start(script: Script) -> str:
        peers.append(Peer(script))
        return peers[-1].address

    yield start
    for peer in peers:
        peer.stop()
    gc.collect()  # an unclosed socket causes a warning, and that an error
    assert [thread.name for thread in infeed_threads()] == []


@pytest.fixture
def full() -> Iterator[str]:
    """The address of a server with a full backlog, where new connections wait."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for client in waiting:
            client.close()
