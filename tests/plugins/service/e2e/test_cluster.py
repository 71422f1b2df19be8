"""A cluster of the data service: dispatcher, workers, gateway and trainers, killed and halted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.service.e2e.cluster import (
    ALL,
    SEED,
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
from infeed_server.order.sample_order import SampleOrder

SAMPLES, BATCH = 320, 8

MAX_LOST_BATCHES = 20
"""Bound on the batches that a worker has taken and not delivered: prefetched, or requested."""


@pytest.fixture(scope="module")
def cluster(command_line: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One dispatcher, two workers, a gateway."""
    folder = tmp_path_factory.mktemp("cluster")
    started = Cluster(command_line, folder, "pipelines:" + numbers_text(folder, SAMPLES, BATCH))
    yield started.start(2)
    started.stop()


def take(feed: infeed.Feed, batches: int = ALL) -> list[Slot]:
    """Returns the slots of some batches, or of the rest."""
    return [slot for batch in islice(feed, batches) for slot in slots_of(batch)]


def test_coordinated_consumers_get_one_round_each_step(cluster: Cluster, tmp_path: Path) -> None:
    """Without sharding, each worker makes all batches in order; a round is two successive ones."""
    go = tmp_path / "go"
    allow_batches(go, ALL)
    steps = 20
    options = {"job_name": "rounds", "num_consumers": 2, "processing_mode": "off", "steps": steps}
    trainers = [
        cluster.trainer(go, "numbers", consumer_index=index, **options) for index in range(2)
    ]
    first, second = (
        [[sample for sample, *_ in batch] for batch in batches_of(trainer)] for trainer in trainers
    )
    assert len(first) == len(second) == steps
    stream = SampleOrder(SAMPLES, SEED, "global").slots(0, 2 * steps * BATCH).index
    order = stream.reshape(-1, BATCH).tolist()
    for a, b in zip(first, second, strict=True):
        assert order.index(b) == order.index(a) + 1
        assert order.index(a) % 2 == 0


def test_job_continues_after_kills_of_worker_and_dispatcher(
    cluster: Cluster, tmp_path: Path, record_property: Any
) -> None:
    """A feed and a TensorFlow trainer share the job, and take batches around each kill."""
    epochs = 6
    go = tmp_path / "go"
    trainer = cluster.trainer(go, "numbers", job_name="killed", epochs=epochs)
    with infeed.connect(cluster.target, "numbers", epochs=epochs, job_name="killed") as feed:
        assert str(feed.guarantee) == "no order, at most once delivery, no resume"
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
        delivered += take(feed)
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
    with infeed.connect(cluster.target, "numbers", epochs=epochs, job_name="alone") as feed:
        delivered = take(feed, 10)
        cluster.kill("worker 1")
        delivered += take(feed)
    deliveries = count(delivered, SAMPLES, epochs)
    assert deliveries["repeated"] == 0
    assert deliveries["unknown"] == 0
    assert deliveries["lost"] <= MAX_LOST_BATCHES * BATCH
