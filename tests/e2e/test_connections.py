"""Several connections to one server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.harness.waiting import wait_until
from tests.stress.chaos.faulty_proxy import FaultyProxy

import infeed

SAMPLES, WIDTH, SIZE, STEPS = 640, 4096, 16, 200

DEFINITION = f"""
pipelines:
  a:
    source: {{arrays: a.npz}}
    shuffle: {{seed: 3}}
    batch: {{size: {SIZE}}}
"""


def content(batch: infeed.Batch) -> tuple[int, bytes, bytes]:
    return batch.start, batch.sample_ids.tobytes(), batch["x"].tobytes()


def reconnected(feed: infeed.Feed, times: int) -> Callable[[], bool]:
    return lambda: feed.stats().reconnects == times


def test_connections_that_are_cut_lose_nothing(serve: Any, tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 255, (SAMPLES, WIDTH), np.uint8)
    np.savez(tmp_path / "a.npz", x=data)
    address = str(serve(DEFINITION).address)
    with infeed.connect(address, "a") as feed:
        expected = [content(next(feed)) for _ in range(STEPS)]
    received = []
    with (
        FaultyProxy(int(address.rpartition(":")[2])) as proxy,
        infeed.connect(proxy.address, "a", connections=4, prefetch_batches=16) as feed,
    ):
        serving = feed._prefetcher._coordinator._scheduler.servers
        wait_until(lambda: len(serving) == 4, "all connections serve")
        for step in range(STEPS):
            if step % 50 == 20:
                proxy.reset(SIZE * WIDTH * 3 // 2, one=True)
            received.append(content(next(feed)))
            if step % 50 == 49:
                wait_until(reconnected(feed, step // 50 + 1), "the connection is made again")
        stats = feed.stats()
        assert proxy.resets == STEPS // 50
        assert (stats.servers, stats.left_out, stats.lost_servers) == ((proxy.address,), 0, ())
    assert received == expected
