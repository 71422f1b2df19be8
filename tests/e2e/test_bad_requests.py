"""Invalid requests, from the client and from a raw peer, beside a feed that stays served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

import infeed
from infeed.rpc.status import error_from_details
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


@pytest.fixture
def address(server: Server) -> str:
    return str(server.address)


@pytest.fixture(autouse=True)
def _concurrent_feed(address: str) -> Iterator[None]:
    """Opens a feed before each test, and reads the rest of it afterwards."""
    with infeed.connect(address, "alpha", epochs=3, prefetch_bytes=0) as feed:
        first = feed.next(10)
        yield
        rest = list(feed)
    assert [batch.start for batch in (first, *rest)] == list(range(0, 28, 4))


@pytest.fixture
def channel(address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address) as channel:
        yield channel


def stream(channel: grpc.Channel, *messages: bytes) -> Any:
    """Sends raw messages; returns the responses."""
    method: Any = channel.stream_stream(SERVICE + "StreamBatches")
    return method(iter(messages), timeout=100)


def open_message(**fields: Any) -> bytes:
    message = stream_pb2.StreamOpen(**{"pipeline": "alpha", **fields})
    return stream_pb2.StreamBatchesRequest(open=message).SerializeToString()


def batch_message(**fields: Any) -> bytes:
    message = stream_pb2.BatchRequest(**fields)
    return stream_pb2.StreamBatchesRequest(batch=message).SerializeToString()


def failure(responses: Any) -> tuple[grpc.StatusCode, infeed.InfeedError, list[bytes]]:
    """Returns the status of a call that fails, the error in it, and the responses before it."""
    before = []
    with pytest.raises(grpc.RpcError) as caught:
        before.extend(responses)
    status: Any = caught.value
    details = dict(status.trailing_metadata())["grpc-status-details-bin"]
    error = error_from_details(details)
    assert error is not None
    assert status.details() == str(error)
    return status.code(), error, before


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        (batch_message(start=-1, count=4), "position -1 is outside of"),
        (b"\x12\xff garbage", "10 bytes is not a valid StreamBatchesRequest"),
    ],
)
def test_invalid_batch_request_fails_after_earlier_batches(
    channel: grpc.Channel, message: bytes, pattern: str
) -> None:
    valid = batch_message(request_id=1, start=4, count=4)
    status, error, before = failure(stream(channel, open_message(), valid, message))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(infeed.InvalidRequestError, match=pattern):
        raise error
    responses = [stream_pb2.StreamBatchesResponse.FromString(item) for item in before]
    events = [response.WhichOneof("event") for response in responses]
    assert events == ["opened", "header", "chunk"]


def test_requests_at_the_limits_are_served(channel: grpc.Channel) -> None:
    # The last position, an empty batch, the largest request id, and a seed of 63 bits.
    messages = stream(
        channel,
        open_message(seed=(1 << 63) - 1),
        batch_message(request_id=1, start=1 << 62, count=4),
        batch_message(request_id=2, start=8, count=0),
        batch_message(request_id=(1 << 64) - 1, start=9, count=3),
    )
    responses = [stream_pb2.StreamBatchesResponse.FromString(message) for message in messages]
    headers = [
        response.header for response in responses if response.WhichOneof("event") == "header"
    ]
    assert [header.start for header in headers] == [1 << 62, 8, 9]
    assert headers[0].epoch == (1 << 62) // 10
    assert list(headers[1].sample_ids) == [-1] * 4
    assert list(headers[1].mask) == [False] * 4
    assert list(headers[2].mask) == [True, True, True, False]
    assert headers[2].request_id == (1 << 64) - 1


def test_connect_to_an_unknown_pipeline_lists_the_known(address: str) -> None:
    with pytest.raises(infeed.PipelineNotFoundError, match="this server has: alpha, beta") as error:
        infeed.connect(address, "gamma")
    assert error.value.metadata == {"pipeline": "gamma", "known": "alpha, beta"}


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"pipeline": "beta"}, "its pipeline is "),
        ({"seed": 5}, "its seed is "),
        ({"fingerprint": "0" * 32}, "its fingerprint is "),
        ({"pipeline": "x", "fingerprint": "y"}, r"its pipeline is .*; its fingerprint is "),
    ],
)
def test_cursor_of_another_run_is_refused(
    address: str, changes: dict[str, Any], pattern: str
) -> None:
    with infeed.connect(address, "alpha") as feed:
        feed.next(10)
        state = feed.state()
    seed = {} if len(changes) > 1 else {"seed": 0}
    with pytest.raises(infeed.CursorError, match=pattern) as caught:
        infeed.connect(address, "alpha", state={**state, **changes}, **seed)
    if len(changes) == 1:
        assert [caught.value.metadata["differs"]] == list(changes)
