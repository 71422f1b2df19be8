"""The gRPC server: its address, its unary calls, and its health while streams wait."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed.errors import ConfigError, InvalidRequestError, PipelineNotFoundError
from infeed.v1 import feed_service_pb2 as service
from infeed_server.engines.monitor import Silent
from infeed_server.rpc import server as rpc_server
from infeed_server.rpc import servicer
from infeed_server.rpc.server import SERVICE, RpcServer
from infeed_server.service.catalog import Catalog

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

LONE = "127.43.0.3"
"""A loopback address at which no other process takes a port that is to be free."""


def call(channel: grpc.Channel, name: str, message: Any) -> bytes:
    method: Any = channel.unary_unary(f"/{SERVICE}/{name}")
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    answer: bytes = method(raw, timeout=60)
    return answer


def names(channel: grpc.Channel, **options: Any) -> tuple[list[str], str]:
    raw = call(channel, "ListPipelines", service.ListPipelinesRequest(**options))
    page = service.ListPipelinesResponse.FromString(raw)
    return [pipeline.name for pipeline in page.pipelines], page.next_page_token


def test_pages_of_pipelines(channel: grpc.Channel) -> None:
    assert names(channel) == (["held", "other"], "")
    assert names(channel, page_size=1) == (["held"], "held")
    assert names(channel, page_size=1, page_token="held") == (["other"], "")
    assert names(channel, page_size=2**31 - 1) == (["held", "other"], "")


def test_a_page_has_so_many_at_most(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(servicer, "_MAX_PAGE", 1)
        assert names(channel, page_size=5) == (["held"], "held")
    with monkeypatch.context() as patch:
        patch.setattr(servicer, "_PAGE", 1)
        assert names(channel) == (["held"], "held")
        assert names(channel, page_size=5) == (["held", "other"], "")


def test_a_token_that_no_page_gave_goes_on_behind_its_name(channel: grpc.Channel) -> None:
    # A pipeline may be gone since the page before: its token still stands for a place.
    assert names(channel, page_token="inside") == (["other"], "")
    assert names(channel, page_token="zzz") == ([], "")


@pytest.mark.parametrize(
    ("method", "message", "words"),
    [
        ("ListPipelines", service.ListPipelinesRequest(page_size=-1), "page_size -1 is negative"),
        ("ListPipelines", b"\xff\xff", "a message of 2 bytes that is no ListPipelinesRequest"),
        ("GetPipeline", b"\xff", "a message of 1 bytes that is no GetPipelineRequest"),
    ],
)
def test_unary_calls_of_nonsense(
    channel: grpc.Channel, refusal: Any, method: str, message: Any, words: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, method, message)
    code, told = refusal(caught.value)
    assert (code, type(told), told.message) == ("INVALID_ARGUMENT", InvalidRequestError, words)


def test_one_pipeline(channel: grpc.Channel, refusal: Any) -> None:
    raw = call(channel, "GetPipeline", service.GetPipelineRequest(name="held"))
    pipeline = service.GetPipelineResponse.FromString(raw).pipeline
    assert (pipeline.name, pipeline.batch_size, pipeline.seed) == ("held", 4, 7)
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, "GetPipeline", service.GetPipelineRequest(name="nowhere"))
    code, told = refusal(caught.value)
    assert (code, type(told)) == ("NOT_FOUND", PipelineNotFoundError)
    assert told.metadata == {"pipeline": "nowhere", "known": "held, other"}


def test_a_method_that_there_is_none_of(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, "Nothing", b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_that_is_too_large_is_refused(live: Any, peer: Any, eventually: Any) -> None:
    _, error = peer().open("x" * 100_000).rest()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # In the middle of a stream too; what it held is free again.
    call = peer().open()
    assert call.next().HasField("opened")
    _, error = call.send(b"x" * 100_000).rest()
    assert error is not None
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")


def test_health_answers_while_streams_wait(
    live: Any, peer: Any, channel: grpc.Channel, eventually: Any
) -> None:
    live.held.held = True
    for _ in range(20):
        assert peer().open().ask(0).next().HasField("opened")
    assert live.gauge("streams") == 20
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", SERVICE):
        request = health_pb2.HealthCheckRequest(service=name)
        assert stub.Check(request, timeout=60).status == SERVING
    live.server.set_serving(False)
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status == NOT_SERVING
    live.held.release()
    eventually(lambda: live.held.sent == 20, "all are answered")


def test_health_answers_when_all_streams_are_taken(
    start: Any, peers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_server, "MAX_STREAMS", 4)
    live = start()
    with grpc.insecure_channel(live.address) as channel:
        for _ in range(4):  # each holds a thread of the pool
            assert peers(channel).open().next().HasField("opened")
        _, error = peers(channel).open().rest()
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status == SERVING
        assert names(channel) == (["held", "other"], "")


def test_a_stop_ends_streams_that_wait(live: Any, peer: Any, eventually: Any) -> None:
    live.held.held = True
    call = peer().open().ask(0)
    assert call.next().HasField("opened")
    live.server.stop(0.1)
    _, error = call.rest()
    assert error.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")


def test_a_taken_port(live: Any) -> None:
    with pytest.raises(ConfigError, match=f"{live.address}: address already in use"):
        RpcServer(Catalog({}), Silent(), live.address)


def test_an_address_of_another_machine() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:0: cannot assign requested address"):
        RpcServer(Catalog({}), Silent(), "192.0.2.1:0")


@pytest.mark.parametrize(
    ("name", "why"),
    [("missing/a.sock", "no such file or directory"), ("x" * 200, "AF_UNIX path too long")],
)
def test_a_unix_path_that_holds_no_socket(tmp_path: Path, name: str, why: str) -> None:
    address = f"unix:{tmp_path / name}"
    with pytest.raises(ConfigError) as caught:
        RpcServer(Catalog({}), Silent(), address)
    assert str(caught.value) == f"cannot listen on {address}: {why}"


def test_the_port_is_free_after_the_stop() -> None:
    server = RpcServer(Catalog({}), Silent(), f"{LONE}:0")
    server.start()
    server.stop(0)
    with socket.socket() as probe:
        probe.bind((LONE, server.port))
