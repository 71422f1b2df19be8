"""The gRPC server: its address, unary calls and health."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed.shared.errors import InvalidRequestError, PipelineNotFoundError
from infeed.v1 import feed_service_pb2 as service
from infeed_server.rpc.server import SERVICE

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

ADDRESS = "127.43.0.3"
"""A loopback address that no other process uses, so that a free port stays free."""


def call(channel: grpc.Channel, name: str, message: Any) -> bytes:
    method: Any = channel.unary_unary(f"/{SERVICE}/{name}")
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    answer: bytes = method(raw, timeout=60)
    return answer


def list_names(channel: grpc.Channel, **options: Any) -> tuple[list[str], str]:
    raw = call(channel, "ListPipelines", service.ListPipelinesRequest(**options))
    page = service.ListPipelinesResponse.FromString(raw)
    return [pipeline.name for pipeline in page.pipelines], page.next_page_token


def test_pipelines_are_listed_in_pages(channel: grpc.Channel) -> None:
    assert list_names(channel) == (["held", "other"], "")
    assert list_names(channel, page_size=1) == (["held"], "held")
    assert list_names(channel, page_size=1, page_token="held") == (["other"], "")
    assert list_names(channel, page_size=2**31 - 1) == (["held", "other"], "")
    # A pipeline may have been removed since the previous page.
    assert list_names(channel, page_token="inside") == (["other"], "")


@pytest.mark.parametrize(
    ("method", "message", "problem"),
    [
        ("ListPipelines", service.ListPipelinesRequest(page_size=-1), "page_size -1 is negative"),
        ("ListPipelines", b"\xff\xff", "a message of 2 bytes is not a valid ListPipelinesRequest"),
        ("GetPipeline", b"\xff", "a message of 1 bytes is not a valid GetPipelineRequest"),
    ],
)
def test_invalid_unary_requests_are_refused(
    channel: grpc.Channel, error_of: Any, method: str, message: Any, problem: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, method, message)
    code, error = error_of(caught.value)
    assert (code, type(error), error.message) == ("INVALID_ARGUMENT", InvalidRequestError, problem)


def test_get_pipeline(channel: grpc.Channel, error_of: Any) -> None:
    raw = call(channel, "GetPipeline", service.GetPipelineRequest(name="held"))
    pipeline = service.GetPipelineResponse.FromString(raw).pipeline
    assert (pipeline.name, pipeline.batch_size, pipeline.seed) == ("held", 4, 7)
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, "GetPipeline", service.GetPipelineRequest(name="nowhere"))
    code, error = error_of(caught.value)
    assert (code, type(error)) == ("NOT_FOUND", PipelineNotFoundError)
    assert error.metadata == {"pipeline": "nowhere", "known": "held, other"}


def test_too_large_message_is_refused(live: Any, new_call: Any, eventually: Any) -> None:
    _, error = new_call().open("x" * 100_000).rest()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # On an open stream too, which is closed then.
    call = new_call().open()
    assert call.next().HasField("opened")
    _, error = call.send(b"x" * 100_000).rest()
    assert error is not None
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")


def test_health_works_while_streams_wait(
    live: Any, new_call: Any, channel: grpc.Channel, eventually: Any
) -> None:
    live.held.held = True
    for _ in range(20):
        assert new_call().open().request(0).next().HasField("opened")
    assert live.gauge("streams") == 20
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", SERVICE):
        request = health_pb2.HealthCheckRequest(service=name)
        assert stub.Check(request, timeout=60).status == SERVING
    live.server.set_serving(False)
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status == NOT_SERVING
    live.held.release()
    eventually(lambda: live.held.sent == 20, "all are answered")
