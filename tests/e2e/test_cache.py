"""Caches and shared batches of real servers: the same bits, with less work, also after a kill."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.http_get import metric
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer
from tests.harness.waiting import wait_until

import infeed

PIPELINE = """
pipelines:
  numbers:
    source: {{arrays: {folder}/numbers.npz}}
    shuffle: {{seed: 3}}
    transforms:
      - cast: {{field: x, dtype: float64}}
      {cache}
      - random_flip_left_right: {{field: x}}
    batch: {{size: 16}}
"""
COUNT = 256

Start = Callable[..., InfeedServer]


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Start:
    """`start(cache)`: a server of 256 images behind this cache."""
    images = np.random.default_rng(0).integers(0, 255, (COUNT, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "numbers.npz", x=images)

    def make(cache: str = "", name: str = "server", *options: str) -> InfeedServer:
        definition = tmp_path / f"{name}.yaml"
        line = f"- cache: {{{cache}, path: {tmp_path}/cache}}" if cache else ""
        definition.write_text(PIPELINE.format(folder=tmp_path, cache=line))
        log, http = tmp_path / name, "127.0.0.1:0"
        return InfeedServer(definition, log, *options, http=http, launch=nursery.start)

    return make


def read(server: InfeedServer, **options: Any) -> list[bytes]:
    """Returns the samples of an epoch, with their ids."""
    with infeed.connect(server.address, "numbers", epochs=1, **options) as feed:
        return [sample for batch in feed for sample in samples(batch)]


def samples(batch: infeed.Batch) -> list[bytes]:
    rows = zip(batch["x"], batch.sample_ids, strict=True)
    return [x.tobytes() + bytes(str(number), "ascii") for x, number in rows]


def cached(server: InfeedServer, result: str) -> float:
    return metric(server.http, "infeed_cache_reads_total", pipeline="numbers", result=result)


def requested(server: InfeedServer, origin: str) -> float:
    return metric(server.http, "infeed_requested_samples_total", origin=origin)


def test_disk_cache_survives_a_kill_and_serves_two_servers(start: Start) -> None:
    with start("store: memory", "memory") as memory:
        expected = read(memory)
        assert read(memory) == expected
        assert cached(memory, "hits") >= COUNT
    with start("store: disk, budget: 64MiB") as first:
        assert read(first) == expected
        assert cached(first, "misses") >= COUNT
        first.kill()
        first.start()
        with start("store: disk", "other") as other:
            assert read(first) == read(other) == expected
            assert cached(first, "misses") + cached(other, "misses") == 0


def test_trainers_with_one_seed_share_batches_of_any_size(start: Start) -> None:
    with start() as server:
        expected = read(server)
        options = {"epochs": 1, "prefetch_batches": 2}
        with ExitStack() as stack:
            feeds = [
                stack.enter_context(
                    infeed.connect(server.address, "numbers", batch_size=size, **options)
                )
                for size in (16, 32, 16)
            ]
            # From its first request on, batches are kept for a feed.
            results = [samples(next(feed)) for feed in feeds]
            for feed, got in zip(feeds, results, strict=True):
                got += [sample for batch in feed for sample in samples(batch)]
        assert results == [expected] * 3
        assert requested(server, "shared") > 0
        wait_until(lambda: not metric(server.http, "infeed_window_bytes"), "no batch is kept")


def test_trainers_that_lag_leave_or_join_late_get_the_same_samples(start: Start) -> None:
    # Room for two of the 16 batches, beside those that are made and sent.
    with start("", "small", "--memory-limit", "1048576") as server, ExitStack() as stack:
        options = {"epochs": 1, "prefetch_batches": 2}
        lagging, leaving = (
            stack.enter_context(infeed.connect(server.address, "numbers", **options))
            for _ in range(2)
        )
        got = samples(next(lagging))
        for _ in range(3):
            next(leaving)
        leaving.close()
        expected = read(server)  # joins late, and overtakes
        got += [sample for batch in lagging for sample in samples(batch)]
        assert got == expected
        assert requested(server, "recomputed") > 0
