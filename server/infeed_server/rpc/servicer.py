"""The servicers of a server: FeedService, and gRPC's health service for known names only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError, InvalidRequestError
from infeed.v1 import feed_service_pb2 as messages
from infeed.v1.stream_pb2 import StreamBatchesRequest
from infeed.wire.chunk import checksum
from infeed_server.engines.base import Engine
from infeed_server.rpc.batch_stream import BatchStreams
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.status import CallError, to_client_text
from infeed_server.serving.catalog import Catalog

_SERVICE = messages.DESCRIPTOR.services_by_name["FeedService"]
_METHODS = _SERVICE.methods_by_name
SERVICE = _SERVICE.full_name

AddedMethod = Callable[[Callable[[str], Engine], Any, Callable[[], bool]], Message]
"""Answers a request. Receives a function that returns the engine of a pipeline that the caller may
read, the request, and a function that returns whether the caller still waits."""

_DOOR = Door("infeed.rpc", "method")
_OWN = {"ListPipelines", "GetPipeline", "StreamBatches"}

_DEFAULT_PAGE_SIZE = 100
_MAX_PAGE_SIZE = 1000


def added_methods() -> dict[str, AddedMethod]:
    """Returns the service's methods that other packages answer. Raises `ConfigError` if a package
    is faulty."""
    _DOOR.refuse_others({*_METHODS.keys()} - _OWN)
    methods = {name: _DOOR.load(name) for name in _DOOR.names()}
    for name, method in methods.items():
        if not callable(method):
            raise ConfigError(f"the method {name!r}, {_DOOR.place(name)}, should be a function")
    return methods


class FeedServicer(grpc.GenericRpcHandler):
    """The methods of FeedService. The generated base class would serialize each response of a
    stream with protobuf; here they are bytes that `infeed.wire` has encoded."""

    def __init__(self, catalog: Catalog, streams: BatchStreams, control_plane: str) -> None:
        self._catalog = catalog
        self._control_plane = control_plane
        self._handlers = {
            f"/{SERVICE}/ListPipelines": _unary(self._list, messages.ListPipelinesRequest),
            f"/{SERVICE}/GetPipeline": _unary(self._get, messages.GetPipelineRequest),
            f"/{SERVICE}/StreamBatches": grpc.stream_stream_rpc_method_handler(
                streams.serve, StreamBatchesRequest.FromString, response_serializer=None
            ),
        }
        for name, method in added_methods().items():
            kind = GetMessageClass(_METHODS[name].input_type)
            self._handlers[f"/{SERVICE}/{name}"] = _unary(partial(self._answer, method), kind)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handlers.get(str(handler_call_details.method))

    def _list(self, request: messages.ListPipelinesRequest, call: ServerCall) -> Message:
        size = min(request.page_size or _DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE)
        if size < 0:
            raise InvalidRequestError(f"page_size {size} is negative")
        catalog = self._catalog.visible_to(call.caller)
        remaining = [spec for spec in catalog.specs() if spec.name > request.page_token]
        page = remaining[:size]
        return messages.ListPipelinesResponse(
            # The names of thousands of classes and parts per pipeline would not fit in a message.
            pipelines=[replace(spec, classes={}, parts={}).to_proto() for spec in page],
            next_page_token=page[-1].name if len(remaining) > len(page) else "",
            control_plane=self._control_plane,
            broken=[
                messages.BrokenPipeline(name=name, reason=to_client_text(reason))
                for name, reason in catalog.broken.items()
            ],
        )

    def _get(self, request: messages.GetPipelineRequest, call: ServerCall) -> Message:
        spec = self._engine(call, request.name).spec
        response = messages.GetPipelineResponse(pipeline=spec.to_proto())
        response.checksum = checksum(response.SerializeToString())
        return response

    def _answer(self, method: AddedMethod, request: Message, call: ServerCall) -> Message:
        return method(partial(self._engine, call), request, call.context.is_active)

    def _engine(self, call: ServerCall, pipeline: str) -> Engine:
        call.caller.require_access(pipeline)
        return self._catalog.visible_to(call.caller).engine(pipeline)


def _unary(method: Callable[..., Message], kind: Any) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        method, kind.FromString, lambda message: message.SerializeToString()
    )


class HealthServicer(health.HealthServicer):  # type: ignore[misc]
    """Health by name. Refuses unknown names: callers need no token, and grpcio would keep each."""

    def __init__(self) -> None:
        super().__init__(experimental_non_blocking=False)
        self._names = {health.OVERALL_HEALTH}

    def set_serving(self, name: str, serving: bool) -> None:
        """Sets a name's status."""
        status = health_pb2.HealthCheckResponse
        self._names.add(name)
        self.set(name, status.SERVING if serving else status.NOT_SERVING)

    def Check(self, request: health_pb2.HealthCheckRequest, call: ServerCall) -> Any:  # noqa: N802
        """Returns the status of a name."""
        return super().Check(self._known(request), call.context)

    def Watch(self, request: health_pb2.HealthCheckRequest, call: ServerCall) -> Any:  # noqa: N802
        """Returns the status now and after every change."""
        return super().Watch(self._known(request), call.context)

    def _known(self, request: health_pb2.HealthCheckRequest) -> health_pb2.HealthCheckRequest:
        if request.service not in self._names:
            raise CallError(InvalidRequestError("unknown service"), "NOT_FOUND")
        return request
