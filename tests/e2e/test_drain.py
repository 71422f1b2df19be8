"""Graceful shutdown: readiness first, then streams, whose pending requests are answered."""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.harness.http_get import fetch
from tests.harness.waiting import wait_until

import infeed
from infeed.v1 import stream_pb2

SAMPLES, SIZE = 800, 8
STREAM = "/infeed.v1.FeedService/StreamBatches"

FOREVER = "3600"
"""Grace period in seconds that is longer than any test."""

DEFINITION = f"""
pipelines:
  a:
    source: {{arrays: a.npz}}
    batch: {{size: {SIZE}}}
"""


@pytest.fixture
def serve(command_line: Any, tmp_path: Path) -> Callable[[str], Any]:
    """Starts a server with a grace period; its `http` is the address of its control plane."""
    np.savez(tmp_path / "a.npz", x=np.arange(SAMPLES * 1000).reshape(SAMPLES, 1000))

    def start(grace: str) -> Any:
        options = ("--http", "127.0.0.1:0", "--grace", grace)
        return command_line.serve(DEFINITION, tmp_path, "127.0.0.1:0", *options)

    return start


def test_feed_continues_at_another_server_during_a_drain(serve: Any) -> None:
    first, second = serve(FOREVER), serve(FOREVER)
    target = f"{first.address},{second.address}"
    sample_ids: list[int] = []
    with infeed.connect(target, "a", epochs=2, prefetch_bytes=1 << 20) as feed:
        for step, batch in enumerate(feed):
            sample_ids += batch.sample_ids.tolist()
            if step == 20:
                first.signal(signal.SIGTERM)
    assert sorted(sample_ids[:SAMPLES]) == sorted(sample_ids[SAMPLES:]) == list(range(SAMPLES))
    assert first.wait() == 0
    second.signal(signal.SIGTERM)
    assert second.wait() == 0


class Peer:
    """A stream of grpcio's client, which requests batches during a drain."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: queue.SimpleQueue[stream_pb2.StreamBatchesRequest | None]
        self._requests = queue.SimpleQueue()
        self._requests.put(
            stream_pb2.StreamBatchesRequest(open=stream_pb2.StreamOpen(pipeline="a"))
        )
        call = channel.stream_stream(
            STREAM,
            stream_pb2.StreamBatchesRequest.SerializeToString,
            stream_pb2.StreamBatchesResponse.FromString,
        )
        self.responses = call(iter(self._requests.get, None))
        assert next(self.responses).WhichOneof("event") == "opened"

    def read_batch(self, start: int) -> int:
        """Requests a batch; returns its size in bytes."""
        batch = stream_pb2.BatchRequest(request_id=start, start=start, count=SIZE)
        self._requests.put(stream_pb2.StreamBatchesRequest(batch=batch))
        extra = ("heartbeat", "draining")
        header = next(
            response for response in self.responses if response.WhichOneof("event") not in extra
        ).header
        assert header.start == start
        size = 0
        while size < header.payload_size:
            size += len(next(self.responses).chunk.data)
        return size

    def close_send(self) -> None:
        """Ends the requests."""
        self._requests.put(None)


@pytest.fixture
def peer() -> Iterator[Callable[[str], Peer]]:
    with ExitStack() as stack:
        yield lambda address: Peer(stack.enter_context(grpc.insecure_channel(address)))


def test_drain_ends_readiness_but_serves_open_streams(serve: Any, peer: Any) -> None:
    server = serve(FOREVER)
    stream = peer(server.address)

    def readiness() -> Any:
        return fetch(server.http, "/readyz").json

    assert stream.read_batch(0) > 0
    server.signal(signal.SIGTERM)
    wait_until(lambda: not readiness()["ready"], "it is not ready")
    assert readiness()["reason"] == "shutting down"
    for step in range(1, 30):
        assert stream.read_batch(step * SIZE) > 0
    with pytest.raises(infeed.ServerUnavailableError):
        infeed.connect(server.address, "a", timeout=0.2)
    assert not server.ended
    stream.close_send()
    assert server.wait() == 0


@pytest.mark.parametrize(
    ("grace", "status"),
    [("0.5", 0), (FOREVER, 128 + signal.SIGTERM)],
    ids=["end of the grace", "second signal"],
)
def test_stream_that_never_ends_does_not_hold_the_server(
    serve: Any, peer: Any, grace: str, status: int
) -> None:
    server = serve(grace)
    stream = peer(server.address)
    assert stream.read_batch(0) > 0
    server.signal(signal.SIGTERM)
    if grace == FOREVER:
        wait_until(lambda: not fetch(server.http, "/readyz").json["ready"], "it is not ready")
        server.signal(signal.SIGTERM)
    assert server.wait() == status
