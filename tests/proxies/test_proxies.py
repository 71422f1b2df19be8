"""The configurations of deploy/proxies: batches, errors and drains pass through each proxy."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc
import pytest
from tests.harness.counting_engine import BAD_FROM, SAMPLES, SLOTS
from tests.harness.proxies import ProxyProcess
from tests.harness.waiting import wait_until

import infeed
from infeed.v1 import stream_pb2

LONG_SECONDS = 3600.0
"""A grace period that no test waits for."""


def ids_of_epochs(count: int) -> list[int]:
    return [position % SAMPLES for position in range(count * SAMPLES)]


def test_feed_reads_through_the_proxy(proxy: ProxyProcess) -> None:
    with infeed.connect(proxy.address, "n", epochs=2) as feed:
        assert [sample_id for batch in feed for sample_id in batch.sample_ids] == ids_of_epochs(2)


def test_servers_drain_one_after_the_other_behind_the_proxy(
    proxy: ProxyProcess, backends: Any
) -> None:
    """Both servers are stopped: one of them had the feed."""
    ids: list[int] = []
    with infeed.connect(proxy.address, "n", epochs=4, prefetch_bytes=1) as feed:
        ids += next(feed).sample_ids.tolist()
        busy = next(backend for backend in backends if backend.rpc._admission.open_calls("streams"))
        begin = time.monotonic()
        stop = threading.Thread(target=busy.stop, args=(LONG_SECONDS,))
        stop.start()
        while stop.is_alive():  # a trainer that reads continuously
            ids += next(feed).sample_ids.tolist()
            assert len(ids) < 3 * SAMPLES
            stop.join(0.01)
        print(f"{proxy.process.log.name}: drained in {time.monotonic() - begin:.2f} s")
        ids += [sample_id for batch in feed for sample_id in batch.sample_ids]
        assert feed.stats().reconnects == 1
    assert ids == ids_of_epochs(4)


def test_stream_that_is_left_ends_with_the_servers_status(
    proxy: ProxyProcess, backends: Any, error_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a loaded machine the end of a call takes longer, and the server would reset it.
    monkeypatch.setattr("infeed_server.rpc.server._END_TIMEOUT_SECONDS", 60.0)
    with grpc.insecure_channel(proxy.address) as channel:
        is_over = threading.Event()

        def requests() -> Any:
            yield stream_pb2.StreamBatchesRequest(open=stream_pb2.StreamOpen(pipeline="n"))
            is_over.wait(60)

        call: Any = channel.stream_stream(
            "/infeed.v1.FeedService/StreamBatches",
            stream_pb2.StreamBatchesRequest.SerializeToString,
            stream_pb2.StreamBatchesResponse.FromString,
        )(requests(), timeout=60, wait_for_ready=True)
        assert next(call).WhichOneof("event") == "opened"
        for backend in backends:
            backend.stop(0.2)
        events: list[str] = []
        with pytest.raises(grpc.RpcError) as caught:
            events.extend(message.WhichOneof("event") for message in call)
        is_over.set()
    call_error: Any = caught.value
    if proxy.name == "haproxy" and call_error.code() is grpc.StatusCode.CANCELLED:
        return  # it resets the stream behind the status, and grpcio's client drops the rest
    code, error = error_of(call_error)
    assert events == ["draining"]
    assert (code, error.reason) == ("UNAVAILABLE", "SERVER_UNAVAILABLE")


def test_errors_pass_through_the_proxy(proxy: ProxyProcess) -> None:
    with pytest.raises(infeed.PipelineNotFoundError, match="this server has: bad, n"):
        infeed.connect(proxy.address, "other")


def test_error_of_an_open_stream_passes_through_the_proxy(proxy: ProxyProcess) -> None:
    with infeed.connect(proxy.address, "bad", epochs=2, reconnect_timeout=5) as feed:
        assert [next(feed).start for _ in range(BAD_FROM // SLOTS)] == [*range(0, BAD_FROM, SLOTS)]
        with pytest.raises(infeed.SampleError, match=f"sample {BAD_FROM} is bad"):
            next(feed)


def test_batch_larger_than_every_buffer_passes_through_the_proxy(proxy: ProxyProcess) -> None:
    with infeed.connect(proxy.address, "n", batch_size=50 * SLOTS, epochs=1) as feed:
        (batch,) = feed
    assert batch["x"].nbytes == 3_200_000
    assert batch["x"][:, 0].tolist() == ids_of_epochs(1)


def test_proxy_without_servers_is_unavailable(proxy: ProxyProcess, backends: Any) -> None:
    for backend in backends:
        backend.stop(0)
    with pytest.raises(infeed.ServerUnavailableError):
        infeed.connect(proxy.address, "n", timeout=0.5)
    wait_until(lambda: not proxy.process.ended, "the proxy runs")
