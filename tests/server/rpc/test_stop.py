"""Stopping a server: only streams that can still end normally are waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.server.rpc.plain_client import MAX_WINDOW

import infeed
from infeed.http2.connection import Http2Request
from infeed.v1 import stream_pb2
from infeed_server.rpc import server as server_module

LONG_SECONDS = 3600.0
"""Longer than any test: a stop with this grace returns before it ends, or the test fails."""

LARGE_BATCH = 1 << 17
"""Samples of a batch of 1 MiB; 20 such batches exceed the socket buffers."""

STREAM = "/infeed.v1.FeedService/StreamBatches"

WINDOWS = pytest.mark.parametrize("window", [MAX_WINDOW, 100], ids=["full socket", "closed window"])


def requests(count: int) -> Iterator[bytes]:
    opening = stream_pb2.StreamOpen(pipeline="held", batch_size=LARGE_BATCH)
    yield stream_pb2.StreamBatchesRequest(open=opening).SerializeToString()
    for number in range(count):
        batch = stream_pb2.BatchRequest(
            request_id=number, start=number * LARGE_BATCH, count=LARGE_BATCH
        )
        yield stream_pb2.StreamBatchesRequest(batch=batch).SerializeToString()


def start_stop(live: Any) -> threading.Thread:
    """Starts a stop with a long grace."""
    thread = threading.Thread(target=live.server.stop, args=(LONG_SECONDS,), daemon=True)
    thread.start()
    return thread


@WINDOWS
def test_stop_does_not_wait_for_stalled_clients_after_its_grace(
    live: Any, connect: Any, window: int, eventually: Any
) -> None:
    connect(live, window=window).call(STREAM, *requests(20))
    eventually(lambda: len(live.held.batches) == 20, "all batches are made")
    eventually(lambda: live.gauge("streams") == 1, "the stream is open")
    begin = time.monotonic()
    live.server.stop(0.3)
    assert time.monotonic() - begin < 30
    eventually(lambda: live.gauge("streams") == 0, "the stream is closed")
    assert live.held.sent < 20


@WINDOWS
def test_vanished_client_is_given_up(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any, window: int
) -> None:
    monkeypatch.setattr(server_module, "SERVER_PING_INTERVAL_SECONDS", 1.0)
    monkeypatch.setattr(server_module, "SERVER_PING_TIMEOUT_SECONDS", 1.0)
    live = start()
    connect(live, window=window).call(STREAM, *requests(20))  # and answers no ping
    eventually(lambda: live.held.sessions, "the stream is open")
    eventually(lambda: live.held.sessions[0].closed, "it is closed")


def test_stop_waits_only_for_open_streams(
    live: Any, connect: Any, channel: grpc.Channel, new_call: Any, eventually: Any
) -> None:
    health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert next(health).status == health_pb2.HealthCheckResponse.SERVING
    live.held.held = True
    call = new_call().open().request(0)
    assert call.next().HasField("opened")
    connect(live)  # a connection without a stream
    eventually(lambda: live.held.figures().queued_requests == 1, "the request is queued")
    thread = start_stop(live)
    assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert call.next().HasField("draining")
    live.held.held = False
    live.held.release()
    assert call.next().HasField("header")
    assert call.next().HasField("chunk")
    assert call.request(4).next().HasField("header")  # an open stream continues
    assert thread.is_alive()
    call.half_close()
    thread.join(100)
    assert not thread.is_alive()
    encoders = live.server._encoder._pool._threads
    assert encoders
    assert not any(thread.is_alive() for thread in encoders)


def test_feed_behind_a_proxy_leaves_a_server_that_drains(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Http2Request, "_handle_goaway", lambda *_: None)  # none passes a proxy
    with infeed.connect(live.address, "held", prefetch_bytes=1, reconnect_timeout=0.1) as feed:
        next(feed)
        thread = start_stop(live)
        with pytest.raises(infeed.ServerUnavailableError, match="no reconnect within"):
            for _ in islice(feed, 20_000):  # without the message, the feed has no end
                pass
        thread.join(100)
        assert not thread.is_alive()


def test_stream_open_after_the_grace_ends_with_a_status(
    live: Any, new_call: Any, error_of: Any
) -> None:
    live.held.held = True
    call = new_call().open().request(0)
    assert call.next().HasField("opened")
    thread = threading.Thread(target=live.server.stop, args=(0.2,))
    thread.start()
    assert call.next().HasField("draining")
    responses, error = call.rest()
    thread.join()
    assert responses == []
    code, reason = error_of(error)
    assert code == "UNAVAILABLE"
    assert isinstance(reason, infeed.ServerUnavailableError)
    assert "shutting down" in str(reason)
