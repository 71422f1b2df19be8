"""Raw peers against whole servers with real engines: what a peer leaves behind when it goes."""

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
    """Which each test leaves as it was: nothing of its peers stays."""
    definition = parse({"source": request.param(), "batch": {"size": 4}})
    with Server({"n": definition}, ServerOptions("127.0.0.1:0", None)) as server:
        yield server


def gauge(server: Any, name: str) -> float | None:
    result: float | None = server.metrics.registry.get_sample_value(
        f"infeed_{name}", {"pipeline": "n"}
    )
    return result


def held(server: Any) -> dict[str, float | None]:
    """Returns what the server holds for its peers."""
    names = ("streams", "queued_requests", "unsent_batches", "unsent_bytes")
    return {name: gauge(server, name) for name in names}


def await_idle(server: Any, eventually: Any) -> None:
    """Waits until nothing is held. A failure shows what is, and where each thread stands."""

    def report() -> str:
        frames = sys._current_frames()
        stacks = [
            f"{thread.name}\n{''.join(traceback.format_stack(frames[thread.ident], limit=-6))}"
            for thread in threading.enumerate()
            if thread.ident in frames
        ]
        return f"nothing is held: {held(server)}\n{''.join(stacks)}"

    eventually(lambda: not any(value != 0 for value in held(server).values()), report)


def unread(server: Any) -> grpc.Channel:
    """A channel that takes 64 KiB of a call that nobody reads, and then no more.

    As a rule gRPC takes more for all calls of a connection that brings much, read or not: the later
    its pings are answered, as on a busy machine, the more, up to hundreds of megabytes.
    """
    return grpc.insecure_channel(str(server.address), [("grpc.http2.bdp_probe", 0)])


def workers() -> int:
    """Threads that belong to single streams."""
    names = ("infeed-intake", "infeed-sequence")
    return sum(each.name.startswith(names) for each in threading.enumerate())


def test_a_peer_that_reads_nothing_and_goes(server: Any, peers: Any, eventually: Any) -> None:
    sent = gauge(server, "batches_total")
    with unread(server) as channel:
        call = peers(channel).open("n")
        for number in range(500):
            call.ask(4 * number)
        eventually(lambda: (gauge(server, "queued_requests") or 0) > 300, "most of them wait")
        # Batches that nobody reads are not made: that is the bound on memory.
        assert 1 <= (gauge(server, "unsent_batches") or 0) <= 16
        assert 4 * WIDTH <= (gauge(server, "unsent_bytes") or 0) <= 16 * 4 * WIDTH
        assert gauge(server, "streams") == 1
        assert gauge(server, "batches_total") == sent
        call.cancel()
        await_idle(server, eventually)
    eventually(lambda: not workers(), "no thread is left of it")


def test_a_peer_that_breaks_off_in_a_batch(server: Any, peers: Any, eventually: Any) -> None:
    with grpc.insecure_channel(str(server.address)) as channel:
        for _ in range(10):
            call = peers(channel).open("n").ask(0).ask(4).ask(8)
            kinds = [call.next().WhichOneof("event") for _ in range(3)]
            assert kinds == ["opened", "header", "chunk"]
            call.cancel()
        await_idle(server, eventually)
    eventually(lambda: not workers(), "no thread is left of them")


def test_a_wrong_message_behind_many_requests(server: Any, peers: Any, eventually: Any) -> None:
    with grpc.insecure_channel(str(server.address)) as channel:
        call = peers(channel).open("n")
        for number in range(20):
            call.ask(4 * number)
        call.send(b"\xff").ask(0)
        answers, error = call.rest()
    assert sum(answer.HasField("header") for answer in answers) == 20
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    await_idle(server, eventually)
    eventually(lambda: not workers(), "no thread is left of it")


def test_a_connection_that_is_lost(server: Any, peers: Any, eventually: Any) -> None:
    channel = grpc.insecure_channel(str(server.address))
    calls = [peers(channel).open("n").ask(0) for _ in range(5)]
    for call in calls:
        call.next()
    channel.close()
    await_idle(server, eventually)
    eventually(lambda: not workers(), "no thread is left of them")


@pytest.mark.parametrize("source", [indexed, sequential])
def test_those_who_read_nothing_leave_the_others_their_part(
    source: Any, peers: Any, eventually: Any
) -> None:
    definition = parse({"source": source(), "batch": {"size": 4}})
    batch = 4 * WIDTH
    options = ServerOptions("127.0.0.1:0", None, memory_limit=30 * batch)
    with (
        Server({"n": definition}, options) as server,
        unread(server) as channel,
    ):
        limit = server.metrics.registry.get_sample_value("infeed_unsent_limit_bytes")
        assert limit == 30 * batch
        stopped = [peers(channel).open("n") for _ in range(6)]
        for number in range(64):
            for call in stopped:
                call.ask(4 * number)
        eventually(lambda: gauge(server, "unsent_bytes") >= 12 * batch, "each holds two at least")
        with infeed.connect(str(server.address), "n", epochs=2) as feed:
            assert len(list(feed)) == 2 * ROWS // 4
        assert gauge(server, "unsent_bytes") <= limit
        eventually(lambda: gauge(server, "queued_requests") > 6 * 40, "the rest of what they ask")
        eventually(lambda: gauge(server, "batches_total") == 2 * ROWS // 4, "those of the feed")
        for call in stopped:
            call.cancel()
        await_idle(server, eventually)
