"""Requests that make no sense, from our client and from a raw peer: each gets a proper status,
and the server goes on serving others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

import infeed
from infeed.status import error_from_details
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2
from infeed_server.pipeline.load import parse
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.server import Server

SERVICE = "/infeed.v1.FeedService/"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    arrays = {"x": np.arange(10, dtype=np.int64)}
    pipeline = parse({"source": {"arrays": arrays}, "batch": {"size": 4}})
    running = Server({"beta": pipeline, "alpha": pipeline}, ServerOptions("127.0.0.1:0", None))
    with running:
        yield running


@pytest.fixture(autouse=True)
def _others_are_served(server: Server) -> Iterator[None]:
    """Opens a stream before each test, and reads on from it afterwards."""
    with infeed.connect(str(server.address), "alpha", epochs=3, prefetch_bytes=0) as feed:
        first = feed.next(10)
        yield
        rest = list(feed)
    assert [batch.start for batch in (first, *rest)] == list(range(0, 28, 4))


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(str(server.address)) as channel:
        yield channel


def stream(channel: grpc.Channel, *messages: bytes) -> Any:
    """What the server answers to raw messages."""
    method: Any = channel.stream_stream(SERVICE + "StreamBatches")
    return method(iter(messages), timeout=100)


def opening(**fields: Any) -> bytes:
    message = stream_pb2.StreamOpen(**{"pipeline": "alpha", **fields})
    return stream_pb2.StreamBatchesRequest(open=message).SerializeToString()


def asking(**fields: Any) -> bytes:
    message = stream_pb2.BatchRequest(**fields)
    return stream_pb2.StreamBatchesRequest(batch=message).SerializeToString()


def refusal(answers: Any) -> tuple[grpc.StatusCode, infeed.InfeedError, list[bytes]]:
    """The status, the error inside it, and what came before."""
    before = []
    with pytest.raises(grpc.RpcError) as caught:
        before.extend(answers)
    error: Any = caught.value
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    told = error_from_details(details)
    assert told is not None
    assert error.details() == str(told)
    return error.code(), told, before


@pytest.mark.parametrize(
    ("messages", "code", "words"),
    [
        ([opening(pipeline="gamma")], "NOT_FOUND", "no pipeline 'gamma'; .*: alpha, beta"),
        ([opening(pipeline="")], "NOT_FOUND", "no pipeline ''; .*: alpha, beta"),
        ([opening(fingerprint="0" * 32)], "FAILED_PRECONDITION", "has the fingerprint .* not 000"),
        ([opening(batch_size=11)], "INVALID_ARGUMENT", "batch size 11 is larger .* 10 samples"),
        ([opening(batch_size=-4)], "INVALID_ARGUMENT", "batch size -4 is outside of"),
        ([opening(batch_size=1 << 62)], "INVALID_ARGUMENT", "batch size .* is outside of"),
        ([opening(seed=-1)], "INVALID_ARGUMENT", "seed -1 is outside of"),
        ([opening(epochs=-1)], "INVALID_ARGUMENT", "epochs -1 is negative"),
        ([asking(start=0, count=4)], "INVALID_ARGUMENT", "first message .* must be StreamOpen"),
        ([], "INVALID_ARGUMENT", "first message .* must be StreamOpen"),
        ([b""], "INVALID_ARGUMENT", "first message .* must be StreamOpen"),
        ([b"\xff\xfe garbage"], "INVALID_ARGUMENT", "10 bytes that is no StreamBatchesRequest"),
    ],
)
def test_streams_that_are_not_opened(
    channel: grpc.Channel, messages: list[bytes], code: str, words: str
) -> None:
    status, error, before = refusal(stream(channel, *messages))
    assert status.name == code
    assert not before
    with pytest.raises(type(error), match=words):
        raise error


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (asking(start=-1, count=4), "position -1 is outside of"),
        (asking(start=(1 << 62) + 1, count=4), "position .* is outside of"),
        (asking(start=0, count=5), "5 positions asked for; .* takes 0 to 4"),
        (asking(start=0, count=-1), "-1 positions asked for"),
        (opening(), "after StreamOpen, a stream takes BatchRequest only"),
        (b"", "after StreamOpen, a stream takes BatchRequest only"),
        (b"\x12\xff garbage", "10 bytes that is no StreamBatchesRequest"),
    ],
)
def test_a_bad_request_comes_after_all_good_batches(
    channel: grpc.Channel, message: bytes, words: str
) -> None:
    good = asking(request_id=1, start=4, count=4)
    status, error, before = refusal(stream(channel, opening(), good, message))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(infeed.InvalidRequestError, match=words):
        raise error
    parsed = [stream_pb2.StreamBatchesResponse.FromString(answer) for answer in before]
    events = [answer.WhichOneof("event") for answer in parsed]
    assert events == ["opened", "header", "chunk"]


def test_extreme_requests_that_are_allowed(channel: grpc.Channel) -> None:
    # The last position there is, no position at all, and a seed of 63 bits.
    answers = stream(
        channel,
        opening(seed=(1 << 63) - 1),
        asking(request_id=1, start=1 << 62, count=4),
        asking(request_id=2, start=8, count=0),
        asking(request_id=(1 << 64) - 1, start=9, count=3),
    )
    parsed = [stream_pb2.StreamBatchesResponse.FromString(answer) for answer in answers]
    headers = [answer.header for answer in parsed if answer.WhichOneof("event") == "header"]
    assert [header.start for header in headers] == [1 << 62, 8, 9]
    assert headers[0].epoch == (1 << 62) // 10
    assert list(headers[1].sample_ids) == [-1] * 4
    assert list(headers[1].mask) == [False] * 4
    assert list(headers[2].mask) == [True, True, True, False]
    assert headers[2].request_id == (1 << 64) - 1


@pytest.mark.parametrize("method", ["ListPipelines", "GetPipeline"])
def test_garbage_in_a_single_call(channel: grpc.Channel, method: str) -> None:
    call: Any = channel.unary_unary(SERVICE + method)
    with pytest.raises(grpc.RpcError) as caught:
        call(b"\xff\xfe garbage", timeout=100)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"is no {method}Request" in error.details()


def test_other_calls(channel: grpc.Channel) -> None:
    def status(method: str, message: bytes) -> grpc.StatusCode:
        call: Any = channel.unary_unary(SERVICE + method)
        with pytest.raises(grpc.RpcError) as caught:
            call(message, timeout=100)
        error: Any = caught.value
        code: grpc.StatusCode = error.code()
        return code

    negative = service.ListPipelinesRequest(page_size=-1).SerializeToString()
    assert status("ListPipelines", negative) is grpc.StatusCode.INVALID_ARGUMENT
    assert status("GetPipeline", b"") is grpc.StatusCode.NOT_FOUND
    assert status("DeletePipeline", b"") is grpc.StatusCode.UNIMPLEMENTED
    # Nobody needs a request of this size.
    assert status("GetPipeline", bytes(1 << 20)) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_what_our_client_is_told(server: Server) -> None:
    address = str(server.address)
    with pytest.raises(infeed.PipelineNotFoundError, match="this server has: alpha, beta") as gone:
        infeed.connect(address, "gamma")
    assert gone.value.metadata == {"pipeline": "gamma", "known": "alpha, beta"}
    with pytest.raises(
        infeed.InvalidRequestError, match=r"larger than the data set: .* 10 samples"
    ):
        infeed.connect(address, "alpha", batch_size=11)
    with pytest.raises(infeed.InvalidRequestError, match="not one step fits: 3 ranks take 12"):
        infeed.connect(address, "alpha", shard=infeed.Shard(0, 3), epochs=1)
    with pytest.raises(infeed.InvalidRequestError, match=r"rank 2 is out of range: .* from 0 to 1"):
        infeed.connect(address, "alpha", shard=infeed.Shard(2, 2))


def test_cursors_of_other_runs(server: Server) -> None:
    address = str(server.address)
    with infeed.connect(address, "alpha") as feed:
        feed.next(10)
        state = feed.state()
    changes = {"pipeline": "beta", "seed": 5, "fingerprint": "0" * 32}
    for name, value in changes.items():
        with pytest.raises(infeed.CursorError, match=f"its {name} is ") as caught:
            infeed.connect(address, "alpha", state={**state, name: value}, seed=0)
        assert caught.value.metadata["differs"] == name
    with pytest.raises(infeed.CursorError, match=r"its pipeline is .*; its fingerprint is "):
        infeed.connect(address, "alpha", state={**state, "pipeline": "x", "fingerprint": "y"})
