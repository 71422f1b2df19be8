"""SIGKILL of a worker and of the dispatcher: training continues, and losses are counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.service import (
    ALL,
    Cluster,
    Slot,
    allow_batches,
    batches_of,
    count,
    numbers_text,
    slots_of,
    wait_for_batches,
)

import infeed

SAMPLES, BATCH = 320, 8

MAX_LOST_BATCHES = 20
"""Bound on the batches that a worker has taken and not delivered: prefetched, or requested."""


@pytest.fixture
def cluster(command_line: Any, tmp_path: Path) -> Iterator[Cluster]:
    text = "pipelines:" + numbers_text(tmp_path, SAMPLES, BATCH)
    cluster = Cluster(command_line, tmp_path, text)
    yield cluster
    cluster.stop()


def take(feed: infeed.Feed, batches: int) -> list[Slot]:
    return [slot for _ in range(batches) for slot in slots_of(next(feed))]


def take_rest(feed: infeed.Feed) -> list[Slot]:
    return [slot for batch in feed for slot in slots_of(batch)]


def test_job_continues_after_kills_of_worker_and_dispatcher(
    cluster: Cluster, tmp_path: Path, record_property: Any
) -> None:
    """A feed and a TensorFlow trainer share the job, and take batches around each kill."""
    epochs = 6
    cluster.start(3)
    go = tmp_path / "go"
    trainer = cluster.trainer(go, "numbers", job_name="killed", epochs=epochs)
    with infeed.connect(cluster.target, "numbers", epochs=epochs, job_name="killed") as feed:
        assert feed.guarantee.delivery == "at_most_once"
        allow_batches(go, 10)
        delivered = take(feed, 10)
        wait_for_batches(trainer, 10)
        cluster.kill("worker 1")
        allow_batches(go, 30)
        cluster.start_worker(1)
        delivered += take(feed, 20)
        wait_for_batches(trainer, 30)
        cluster.kill("dispatcher")
        cluster.start_dispatcher()
        allow_batches(go, ALL)
        delivered += take_rest(feed)
    delivered += [slot for batch in batches_of(trainer) for slot in batch]

    deliveries = count(delivered, SAMPLES, epochs)
    record_property("lost", deliveries["lost"])
    assert deliveries["repeated"] == 0, "delivery is at most once"
    assert deliveries["unknown"] == 0
    assert deliveries["lost"] <= MAX_LOST_BATCHES * BATCH


@pytest.mark.slow
def test_epoch_ends_without_a_lost_worker(cluster: Cluster) -> None:
    """It ends a minute later; TensorFlow alone would wait forever."""
    epochs = 3
    cluster.start(2)
    with infeed.connect(cluster.target, "numbers", epochs=epochs, job_name="alone") as feed:
        delivered = take(feed, 10)
        cluster.kill("worker 1")
        delivered += take_rest(feed)
    deliveries = count(delivered, SAMPLES, epochs)
    assert deliveries["repeated"] == 0
    assert deliveries["unknown"] == 0
    assert deliveries["lost"] <= MAX_LOST_BATCHES * BATCH
