"""Clean-up of abandoned streams, on whole servers with real engines."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed_server.pipeline.load import parse
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.server import Server

ROWS, WIDTH = 64, 1 << 18  # samples of 256 KiB


def indexed() -> dict[str, Any]:
    return {"arrays": {"x": np.zeros((ROWS, WIDTH), np.uint8)}}


def sequential() -> dict[str, Any]:
    def rows() -> tf.data.Dataset:
        zeros = tf.zeros([WIDTH], tf.uint8)
        return tf.data.Dataset.range(ROWS).map(lambda _: {"x": zeros})

    return {"dataset": rows}


@pytest.fixture(scope="module", params=[indexed, sequential])
def server(request: Any) -> Iterator[Any]:
    """Runs a server; each test waits until its streams are cleaned up."""
    definition = parse({"source": request.param(), "batch": {"size": 4}})
    with Server({"n": definition}, ServerOptions("127.0.0.1:0", None)) as server:
        yield server


def gauge(server: Any, name: str) -> float | None:
    result: float | None = server.instrument.monitor.registry.get_sample_value(
        f"infeed_{name}", {"pipeline": "n"}
    )
    return result


def held_resources(server: Any) -> dict[str, float | None]:
    """Returns the resources that the server holds for clients."""
    names = ("streams", "queued_requests", "unsent_batches", "unsent_bytes")
    return {"open": len(server._rpc._streams.open), **{name: gauge(server, name) for name in names}}


def await_idle(server: Any, eventually: Any) -> None:
    """Waits until nothing is held; a failure shows what is, and the stack of each thread."""

    def report() -> str:
        frames = sys._current_frames()
        stacks = [
            f"{thread.name}\n{''.join(traceback.format_stack(frames[thread.ident], limit=-6))}"
            for thread in threading.enumerate()
            if thread.ident in frames
        ]
        return f"nothing is held: {held_resources(server)}\n{''.join(stacks)}"

    eventually(lambda: not any(value != 0 for value in held_resources(server).values()), report)


def unread_channel(server: Any) -> grpc.Channel:
    """Returns a channel that buffers at most 64 KiB of a call that is not read.

    By default gRPC grows the window of a fast connection, whether or not its calls are read: up to
    hundreds of megabytes when its pings are answered late, as on a busy machine.
    """
    return grpc.insecure_channel(str(server.address), [("grpc.http2.bdp_probe", 0)])


def stream_threads() -> int:
    """Returns the number of threads that serve single streams."""
    return sum(thread.name.startswith("infeed-requests") for thread in threading.enumerate())


def test_client_that_reads_nothing_and_leaves(server: Any, open_call: Any, eventually: Any) -> None:
    sent = gauge(server, "batches_total")
    with unread_channel(server) as channel:
        call = open_call(channel).open("n")
        for number in range(500):
            call.request(4 * number)
        eventually(lambda: (gauge(server, "queued_requests") or 0) > 300, "most of them are queued")
        # Batches are made only as they are read, which bounds the memory.
        assert 1 <= (gauge(server, "unsent_batches") or 0) <= 16
        assert 4 * WIDTH <= (gauge(server, "unsent_bytes") or 0) <= 16 * 4 * WIDTH
        assert gauge(server, "streams") == 1
        assert gauge(server, "batches_total") == sent
        call.cancel()
        await_idle(server, eventually)
    eventually(lambda: not stream_threads(), "its threads have ended")


def test_lost_connection(server: Any, open_call: Any, eventually: Any) -> None:
    channel = grpc.insecure_channel(str(server.address))
    calls = [open_call(channel).open("n").request(0) for _ in range(5)]
    for call in calls:
        call.next()
    channel.close()
    await_idle(server, eventually)
    eventually(lambda: not stream_threads(), "their threads have ended")


@pytest.mark.parametrize("source", [indexed, sequential])
def test_clients_that_read_nothing_leave_memory_for_others(
    source: Any, open_call: Any, eventually: Any
) -> None:
    definition = parse({"source": source(), "batch": {"size": 4}})
    batch_bytes = 4 * WIDTH
    options = ServerOptions("127.0.0.1:0", None, memory_limit=30)
    with (
        Server({"n": definition}, options) as server,
        unread_channel(server) as channel,
    ):
        limit = server.instrument.monitor.registry.get_sample_value("infeed_unsent_limit_bytes")
        assert limit == 30 * batch_bytes
        stalled_calls = [open_call(channel).open("n") for _ in range(6)]
        for number in range(64):
            for call in stalled_calls:
                call.request(4 * number)
        eventually(
            lambda: gauge(server, "unsent_bytes") >= 12 * batch_bytes, "each call holds two batches"
        )
        with infeed.connect(str(server.address), "n", epochs=2) as feed:
            assert len(list(feed)) == 2 * ROWS // 4
        assert gauge(server, "unsent_bytes") <= limit
        eventually(
            lambda: gauge(server, "queued_requests") > 6 * 40, "their other requests are queued"
        )
        eventually(
            lambda: gauge(server, "batches_total") == 2 * ROWS // 4,
            "the batches of the feed are counted",
        )
        for call in stalled_calls:
            call.cancel()
        await_idle(server, eventually)
