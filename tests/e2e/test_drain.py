"""Graceful stop: readiness ends first, then streams that were sent all they are owed."""

from __future__ import annotations

import json
import queue
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import infeed
from infeed.v1 import stream_pb2

SAMPLES, SIZE = 800, 8
STREAM = "/infeed.v1.FeedService/StreamBatches"


FOREVER = "3600"
"""Seconds of grace: a server that ends within the test has not waited for its end."""

DEFINITION = f"""
pipelines:
  a:
    source: {{arrays: a.npz}}
    batch: {{size: {SIZE}}}
"""


@pytest.fixture
def serve(command_line: Any, tmp_path: Path) -> Callable[[str], Any]:
    """Starts a server with so much grace; its `http` is the address of its control plane."""
    np.savez(tmp_path / "a.npz", x=np.arange(SAMPLES * 1000).reshape(SAMPLES, 1000))

    def start(grace: str) -> Any:
        words = ("--http", "127.0.0.1:0", "--grace", grace)
        server = command_line.serve(DEFINITION, tmp_path, "127.0.0.1:0", *words)
        assert server.address
        server.http = server.stdout.split("(http ")[1].split(")")[0]
        return server

    return start


def until(condition: Callable[[], bool], what: str, seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def readiness(http: str) -> dict[str, Any] | None:
    """The answer of `/readyz`; None when there is none."""
    try:
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=100) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))
    except OSError:
        return None


def sent(http: str) -> float:
    """Batches that the server has sent."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=100) as answer:
        lines = answer.read().decode().splitlines()
    return next(
        float(line.split()[-1]) for line in lines if line.startswith("infeed_batches_total")
    )


def test_a_feed_continues_at_the_other_server_when_one_of_two_drains(serve: Any) -> None:
    first, second = serve(FOREVER), serve(FOREVER)
    target = f"{first.address},{second.address}"
    seen: list[int] = []
    with infeed.connect(target, "a", epochs=2, prefetch_bytes=1 << 20) as feed:
        for step, batch in enumerate(feed):
            seen += batch.sample_ids.tolist()
            if step == 20:
                first.signal(signal.SIGTERM)
    assert sorted(seen[:SAMPLES]) == sorted(seen[SAMPLES:]) == list(range(SAMPLES))
    assert first.wait() == 0
    second.signal(signal.SIGTERM)
    assert second.wait() == 0


def test_a_drain_ends_once_a_feed_that_takes_no_batch_was_sent_what_it_is_owed(serve: Any) -> None:
    server = serve(FOREVER)
    options = {"epochs": 1, "prefetch_bytes": 20 * SIZE * 8000, "reconnect_timeout": 0.5}
    with infeed.connect(server.address, "a", **options) as feed:
        feed.next(timeout=60)
        until(lambda: sent(server.http) == 21, "it is not sent what it asks for")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        for _ in range(20):
            feed.next(timeout=60)
        with pytest.raises(infeed.ServerUnavailableError, match="did not come back"):
            feed.next(timeout=60)


class Peer:
    """A stream of grpcio's client, which keeps asking a server that drains."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: queue.SimpleQueue[stream_pb2.StreamBatchesRequest | None]
        self._requests = queue.SimpleQueue()
        self.ask(stream_pb2.StreamBatchesRequest(open=stream_pb2.StreamOpen(pipeline="a")))
        call = channel.stream_stream(
            STREAM,
            stream_pb2.StreamBatchesRequest.SerializeToString,
            stream_pb2.StreamBatchesResponse.FromString,
        )
        self.answers = call(iter(self._requests.get, None))
        assert next(self.answers).WhichOneof("event") == "opened"

    def ask(self, request: stream_pb2.StreamBatchesRequest) -> None:
        self._requests.put(request)

    def batch(self, start: int) -> int:
        """Asks for a batch; the bytes of it that came."""
        batch = stream_pb2.BatchRequest(request_id=start, start=start, count=SIZE)
        self.ask(stream_pb2.StreamBatchesRequest(batch=batch))
        header = next(one for one in self.answers if one.WhichOneof("event") != "heartbeat").header
        assert header.start == start
        size = 0
        while size < header.payload_size:
            size += len(next(self.answers).chunk.data)
        return size

    def end(self) -> None:
        self._requests.put(None)


@pytest.fixture
def peer() -> Iterator[Callable[[str], Peer]]:
    channels = []
    peers = []

    def connect(address: str) -> Peer:
        channels.append(grpc.insecure_channel(address))
        peers.append(Peer(channels[-1]))
        return peers[-1]

    yield connect
    for each in peers:
        each.end()
    for channel in channels:
        channel.close()


def test_readiness_goes_first_and_open_streams_have_their_grace(serve: Any, peer: Any) -> None:
    server = serve(FOREVER)
    stream = peer(server.address)
    assert stream.batch(0) > 0
    server.signal(signal.SIGTERM)
    until(lambda: not (readiness(server.http) or {"ready": True})["ready"], "still ready")
    told = readiness(server.http)
    assert told is not None
    assert told["reason"] == "shutting down"
    for step in range(1, 30):
        assert stream.batch(step * SIZE) > 0, "what is open goes on"
    with pytest.raises(infeed.ServerUnavailableError):
        infeed.connect(server.address, "a", timeout=0.2)
    assert not server.ended
    stream.end()
    assert server.wait() == 0


def test_a_stream_that_does_not_end_is_cut_after_the_grace(serve: Any, peer: Any) -> None:
    server = serve("0.2")
    stream = peer(server.address)
    assert stream.batch(0) > 0
    server.signal(signal.SIGTERM)
    with pytest.raises(grpc.RpcError) as caught:
        next(stream.answers)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert server.wait() == 0
