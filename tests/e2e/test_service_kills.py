"""kill -9 of a worker and of the dispatcher: training goes on, and what is lost is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.deliveries import Slot, count
from tests.e2e.service import (
    ALL,
    Cluster,
    allow,
    batches_of,
    numbers_text,
    slots_of,
    took,
)

import infeed

SAMPLES, BATCH = 320, 8

LOST_BATCHES = 20
"""The most that a worker has taken and not given: what it prefetches, and its clients ask for."""


@pytest.fixture
def cluster(command_line: Any, tmp_path: Path) -> Iterator[Cluster]:
    text = "pipelines:" + numbers_text(tmp_path, SAMPLES, BATCH)
    started = Cluster(command_line, tmp_path, text)
    yield started
    started.stop()


def take(feed: infeed.Feed, batches: int) -> list[Slot]:
    return [slot for _ in range(batches) for slot in slots_of(next(feed))]


def rest(feed: infeed.Feed) -> list[Slot]:
    return [slot for batch in feed for slot in slots_of(batch)]


def test_a_killed_worker_and_a_killed_dispatcher(
    cluster: Cluster, tmp_path: Path, record_property: Any
) -> None:
    """A feed and a TensorFlow trainer share the job, and take batches before and after each."""
    epochs = 6
    cluster.start(3)
    go = tmp_path / "go"
    trainer = cluster.trainer(go, "numbers", job_name="killed", epochs=epochs)
    with infeed.connect(cluster.target, "numbers", epochs=epochs, job_name="killed") as feed:
        assert feed.guarantee.delivery == "at_most_once"
        allow(go, 10)
        seen = take(feed, 10)
        took(trainer, 10)
        cluster.kill("worker 1")
        allow(go, 30)
        cluster.work(1)
        seen += take(feed, 20)
        took(trainer, 30)
        cluster.kill("dispatcher")
        cluster.dispatch()
        allow(go, ALL)
        seen += rest(feed)
    seen += [slot for batch in batches_of(trainer) for slot in batch]

    found = count(seen, SAMPLES, epochs)
    print(f"worker and dispatcher killed: of {SAMPLES * epochs} samples: {found}")
    record_property("lost", found.lost)
    assert found.repeated == 0, "at most once is what was promised"
    assert found.unknown == 0
    assert found.lost <= LOST_BATCHES * BATCH


@pytest.mark.slow
def test_a_worker_that_never_comes_back(cluster: Cluster) -> None:
    """An epoch ends without it, a minute later; TensorFlow alone would wait for ever."""
    epochs = 3
    cluster.start(2)
    with infeed.connect(cluster.target, "numbers", epochs=epochs, job_name="alone") as feed:
        seen = take(feed, 10)
        cluster.kill("worker 1")
        seen += rest(feed)
    found = count(seen, SAMPLES, epochs)
    assert found.repeated == 0
    assert found.unknown == 0
    assert found.lost <= LOST_BATCHES * BATCH
