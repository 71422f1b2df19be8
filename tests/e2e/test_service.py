"""A tf.data service cluster: delivery of every sample, sharding modes and both engines."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.e2e.service import (
    ALL,
    SEED,
    Cluster,
    allow_batches,
    batches_of,
    count,
    numbers_text,
    photos_text,
    slots_of,
    wait_for_batches,
)

import infeed
from infeed_server import Server, ServerOptions
from infeed_server.order.sample_order import SampleOrder
from infeed_server.pipeline.load import load
from infeed_tools.audit.run import audit

SAMPLES, BATCH = 200, 8


@pytest.fixture(scope="module")
def cluster(
    command_line: Any, few_photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One dispatcher, two workers, a gateway."""
    folder = tmp_path_factory.mktemp("cluster")
    text = photos_text(few_photos) + numbers_text(folder, SAMPLES, BATCH)
    started = Cluster(command_line, folder, text)
    yield started.start(2)
    started.stop()


def test_consumers_of_a_job_share_every_sample_once(cluster: Cluster, tmp_path: Path) -> None:
    """Each consumer takes one batch before any takes more, so that all participate."""
    epochs = 16  # more than two consumers prefetch before the third begins
    go = tmp_path / "go"
    options = {"job_name": "shared", "epochs": epochs}
    trainers = [cluster.trainer(go, "numbers", **options) for _ in range(2)]
    allow_batches(go, 1)
    for trainer in trainers:
        wait_for_batches(trainer, 1)
    with infeed.connect(cluster.target, "numbers", prefetch_bytes=1, **options) as feed:
        assert str(feed.guarantee) == "no order, at most once delivery, no resume"
        delivered = slots_of(next(feed))
        allow_batches(go, ALL)
        delivered += [slot for batch in feed for slot in slots_of(batch)]
    for trainer in trainers:
        delivered += [slot for batch in batches_of(trainer) for slot in batch]
    assert count(delivered, SAMPLES, epochs) == {"lost": 0, "repeated": 0, "unknown": 0}


@pytest.mark.parametrize("world_size", [1, 3])
def test_audit_is_exact(cluster: Cluster, few_photos: SimpleNamespace, world_size: int) -> None:
    result = audit(cluster.target, "photos", world_size=world_size)
    assert result.exact, result.findings()
    assert result.total("once") == few_photos.count


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


def test_both_engines_make_the_same_samples(cluster: Cluster) -> None:

    def samples(target: str) -> dict[tuple[int, int], tuple[Any, int]]:
        """Returns (epoch, sample id) → image and label."""
        result = {}
        with infeed.connect(target, "photos", epochs=2, batch_size=20) as feed:
            for batch in feed:
                assert (batch["image"].shape, batch["image"].dtype) == ((20, 32, 32, 3), "float32")
                for slot, sample in enumerate(batch.sample_ids.tolist()):
                    result[batch.epoch, sample] = batch["image"][slot], int(batch["label"][slot])
        return result

    photos = load(str(cluster.folder / "pipelines.yaml"))["photos"]
    with Server({"photos": photos}, ServerOptions("127.0.0.1:0", http=None)) as server:
        local = samples(str(server.address))
    remote = samples(cluster.target)
    assert remote.keys() == local.keys()
    for key, (image, label) in local.items():
        assert np.array_equal(remote[key][0], image), key
        assert remote[key][1] == label


def test_finish_transforms_run_at_trainer_or_gateway(cluster: Cluster) -> None:
    for finish in ("trainer", "server"):
        with infeed.connect(cluster.target, "photos", epochs=1, finish=finish) as feed:
            image = next(feed)["image"]
        assert image.dtype == "float32"
        assert 0 < image.max() <= 1


MIRRORED = """
import json, sys, tensorflow as tf, infeed.tensorflow
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
data = strategy.distribute_datasets_from_function(
    lambda context: infeed.tensorflow.distribute(*sys.argv[1:])
)
for (image, *_), _ in zip(data, range(3)):
    parts = strategy.experimental_local_results(image)
    print(json.dumps([part.shape.as_list() for part in parts]), flush=True)
"""


def test_two_devices_of_a_strategy_get_a_batch_each(cluster: Cluster) -> None:
    (cluster.folder / "mirrored.py").write_text(MIRRORED)
    words = ("python", "mirrored.py", cluster.target, "photos")
    trainer = cluster.command_line.run(*words, cwd=cluster.folder)
    assert trainer.status == 0, trainer.stderr
    assert trainer.stdout.splitlines() == ["[[16, 32, 32, 3], [16, 32, 32, 3]]"] * 3


def test_feed_stalls_and_continues_with_its_dispatcher(cluster: Cluster) -> None:
    """The dispatcher is stopped, not killed: its connections stay open."""
    dispatcher = cluster.processes["dispatcher"]
    with infeed.connect(cluster.target, "numbers") as feed:
        next(feed)
        dispatcher.halt()
        try:
            with pytest.raises(infeed.StallError):
                read_until_stalled(feed)
        finally:
            dispatcher.signal(signal.SIGCONT)
        for _ in range(100):
            feed.next(200)


def read_until_stalled(feed: infeed.Feed) -> None:
    while True:
        feed.next(0.5)
