"""FeedService on gRPC: names to calls, errors to statuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from infeed.errors import InvalidRequestError
from infeed.registered import DatasetRequest
from infeed.v1 import feed_service_pb2 as messages
from infeed_server.engines.monitor import Monitor
from infeed_server.rpc.call import Framed, ServerCall
from infeed_server.rpc.encoder import Encoder
from infeed_server.rpc.status import ended_by
from infeed_server.rpc.stream import serve_stream
from infeed_server.service.access import Caller
from infeed_server.service.catalog import Catalog

SERVICE = messages.DESCRIPTOR.services_by_name["FeedService"].full_name

_PAGE = 100
_MAX_PAGE = 1000


class FeedServicer(grpc.GenericRpcHandler):
    """Routes the service's methods.

    Not the generated base class, because that one would push every answer of the stream through
    a protobuf serializer; here the stream's answers are the bytes that `infeed.wire` made.
    """

    def __init__(self, catalog: Catalog, encoder: Encoder, monitor: Monitor) -> None:
        self._catalog = catalog
        self._encoder = encoder
        self._monitor = monitor
        self._handlers = {
            f"/{SERVICE}/ListPipelines": _unary(self._list, messages.ListPipelinesRequest),
            f"/{SERVICE}/GetPipeline": _unary(self._get, messages.GetPipelineRequest),
            f"/{SERVICE}/RegisterDataset": _unary(self._register, messages.RegisterDatasetRequest),
            f"/{SERVICE}/StreamBatches": grpc.stream_stream_rpc_method_handler(
                self._stream,
                request_deserializer=None,
                response_serializer=None,
            ),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handlers.get(str(handler_call_details.method))

    def _list(
        self, request: messages.ListPipelinesRequest, caller: Caller
    ) -> messages.ListPipelinesResponse:
        size = min(request.page_size or _PAGE, _MAX_PAGE)
        if size < 0:
            raise InvalidRequestError(f"page_size {size} is negative")
        specs = self._catalog.seen_by(caller).specs()
        rest = [spec for spec in specs if spec.name > request.page_token]
        page = rest[:size]
        return messages.ListPipelinesResponse(
            pipelines=[spec.to_proto() for spec in page],
            next_page_token=page[-1].name if len(rest) > len(page) else "",
        )

    def _get(
        self, request: messages.GetPipelineRequest, caller: Caller
    ) -> messages.GetPipelineResponse:
        caller.require(request.name)
        spec = self._catalog.seen_by(caller).engine(request.name).spec
        return messages.GetPipelineResponse(pipeline=spec.to_proto())

    def _register(
        self, request: messages.RegisterDatasetRequest, caller: Caller
    ) -> messages.RegisterDatasetResponse:
        caller.require(request.pipeline)
        asked = DatasetRequest.from_proto(request)
        return self._catalog.seen_by(caller).register(asked).to_proto()

    def _stream(
        self,
        messages: Iterator[bytes],
        context: ServerCall,
    ) -> Iterator[Framed]:
        try:
            yield from serve_stream(self._catalog, self._encoder, self._monitor, messages, context)
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            raise ended_by(error) from None


def _unary(call: Callable[[Any, Caller], Any], request: Any) -> grpc.RpcMethodHandler[Any, Any]:
    def handle(message: bytes, context: ServerCall) -> Any:
        try:
            return call(_parsed(request, message), context.caller)
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            raise ended_by(error) from None

    return grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=None,
        response_serializer=lambda message: message.SerializeToString(),
    )


def _parsed(request: Any, message: bytes) -> Any:
    try:
        return request.FromString(message)
    except DecodeError:
        name = request.DESCRIPTOR.name
        raise InvalidRequestError(f"a message of {len(message)} bytes that is no {name}") from None
