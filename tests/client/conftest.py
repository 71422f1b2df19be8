"""A real gRPC server in this process, around anything that answers like a `FakeTransport`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from infeed.errors import DOMAIN, InfeedError, PipelineNotFoundError
from infeed.keepalive import SERVER_OPTIONS
from infeed.testing import FakeTransport
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2


def to_status(error: InfeedError) -> Any:
    """What infeed's server makes of an error, with the official classes."""
    detail = any_pb2.Any()
    detail.Pack(
        error_details_pb2.ErrorInfo(
            reason=error.reason, domain=DOMAIN, metadata=dict(error.metadata)
        )
    )
    code = code_pb2.Code.Value(error.code)
    status = status_pb2.Status(code=code, message=error.message, details=[detail])
    return rpc_status.to_status(status)


class Server:
    """Serves fakes on a real port; `stop` cuts every connection, `start` takes the port again."""

    def __init__(self, *pipelines: Any, address: str = "127.0.0.1:0") -> None:
        self.pipelines = {fake.spec.name: fake for fake in pipelines}
        self.address = address
        self.opens: list[stream_pb2.StreamOpen] = []
        self._server: grpc.Server | None = None
        self.start()

    def start(self) -> None:
        self._pool = ThreadPoolExecutor(16)
        self._server = grpc.server(self._pool, options=[*SERVER_OPTIONS, ("grpc.so_reuseport", 0)])
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
        last = first + 2  # small pages, whatever was asked for
        names = sorted(self.pipelines)
        return service.ListPipelinesResponse(
            pipelines=[self.pipelines[name].spec.to_proto() for name in names[first:last]],
            next_page_token=str(last) if last < len(names) else "",
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
                return  # the client is gone

        try:
            yield from self.pipelines[first.open.pipeline].answer(all_requests())
        except InfeedError as error:
            context.abort_with_status(to_status(error))


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers that end with the test."""
    servers: list[Server] = []

    def start(*pipelines: Any, **options: str) -> Server:
        servers.append(Server(*pipelines, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def arrays() -> dict[str, Any]:
    """50 samples whose image tells their index."""
    image = np.zeros((50, 3, 4), np.uint8)
    image += np.arange(50, dtype=np.uint8)[:, None, None]
    return {"image": image, "label": np.arange(50)}


@pytest.fixture
def fake(arrays: dict[str, Any]) -> FakeTransport:
    return FakeTransport(arrays, batch_size=4, seed=3)


@pytest.fixture
def status_of() -> Callable[[InfeedError], Any]:
    return to_status
