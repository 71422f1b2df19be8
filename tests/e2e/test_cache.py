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
def folder(tmp_path: Path) -> Path:
    """A folder of 256 images."""
    images = np.random.default_rng(0).integers(0, 255, (COUNT, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "numbers.npz", x=images)
    return tmp_path


@pytest.fixture
def start(nursery: Nursery, folder: Path) -> Start:
    """`start(cache)`: a server of the images behind this cache."""

    def make(cache: str, name: str = "server") -> InfeedServer:
        definition = folder / f"{name}.yaml"
        line = f"- cache: {{{cache}, path: {folder}/cache}}"
        definition.write_text(PIPELINE.format(folder=folder, cache=line))
        log, http = folder / name, "127.0.0.1:0"
        return InfeedServer(definition, log, http=http, launch=nursery.start)

    return make


def read(server: Any) -> list[bytes]:
    """Returns the samples of an epoch, with their ids."""
    with infeed.connect(str(server.address), "numbers", epochs=1) as feed:
        return [sample for batch in feed for sample in samples(batch)]


def samples(batch: infeed.Batch) -> list[bytes]:
    rows = zip(batch["x"], batch.sample_ids, strict=True)
    return [x.tobytes() + bytes(str(number), "ascii") for x, number in rows]


def cached(server: InfeedServer, result: str) -> float:
    return metric(server.http, "infeed_cache_reads_total", pipeline="numbers", result=result)


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


def test_trainers_with_one_seed_share_batches_of_any_size(serve: Any, folder: Path) -> None:
    server = serve(PIPELINE.format(folder=folder, cache=""))
    figure = server.instrument.monitor.registry.get_sample_value
    labels = {"pipeline": "numbers", "origin": "shared"}
    expected = read(server)
    with ExitStack() as stack:
        feeds = [
            stack.enter_context(
                infeed.connect(
                    str(server.address), "numbers", batch_size=size, epochs=1, prefetch_batches=2
                )
            )
            for size in (16, 32, 16)
        ]
        # From its first request on, batches are kept for a feed.
        results = [samples(next(feed)) for feed in feeds]
        for feed, got in zip(feeds, results, strict=True):
            got += [sample for batch in feed for sample in samples(batch)]
    assert results == [expected] * 3
    assert figure("infeed_requested_samples_total", labels) > 0
