"""TensorFlow's data service, run by infeed: real processes, real JPEGs, every sample counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.e2e.service import Cluster, kept, photos_text, told

import infeed
from infeed.audit import audit

EPOCHS = 4


@pytest.fixture(scope="module")
def cluster(
    command_line: Any, photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One dispatcher, three workers, a gateway."""
    started = Cluster(command_line, tmp_path_factory.mktemp("cluster"), photos_text(photos))
    yield started.start(3)
    for process in started.processes.values():
        process.kill()


def ready(*trainers: Any) -> None:
    deadline = time.monotonic() + 120
    for trainer in trainers:
        while "ready" not in trainer.stdout:
            assert not trainer.ended, trainer.stdout + trainer.stderr
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_every_sample_comes_once_among_all_consumers_of_a_job(
    cluster: Cluster, photos: SimpleNamespace, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    trainers = [cluster.trainer(go, job_name="shared", epochs=EPOCHS) for _ in range(2)]
    ready(*trainers)
    seen: Counter[int] = Counter()
    go.touch()
    with infeed.connect(cluster.target, "photos", epochs=EPOCHS, job_name="shared") as feed:
        assert str(feed.guarantee) == "none order, at most once delivery, none resume"
        shares = [kept(batch.sample_ids for batch in feed)]
    shares += [kept(told(trainer)["batches"]) for trainer in trainers]
    for share in shares:
        seen.update(share)
    assert seen == dict.fromkeys(range(photos.count), EPOCHS)
    assert all(shares), "a consumer that got nothing shows nothing"


@pytest.mark.parametrize("world_size", [1, 3])
def test_an_audit_finds_every_sample_once(
    cluster: Cluster, photos: SimpleNamespace, world_size: int
) -> None:
    result = audit(cluster.target, "photos", world_size=world_size)
    assert result.exact, result.findings()
    assert result.total("once") == photos.count


def test_coordinated_reads_give_batches_of_one_round(cluster: Cluster, tmp_path: Path) -> None:
    """Without sharding every worker makes the batches in order, and gives two in a row away."""
    go = tmp_path / "go"
    steps = 20
    go.touch()
    options = {"job_name": "rounds", "num_consumers": 2, "processing_mode": "off", "steps": steps}
    both = [cluster.trainer(go, consumer_index=index, **options) for index in range(2)]
    first, second = (told(trainer)["batches"] for trainer in both)
    assert len(first) == len(second) == steps
    with infeed.connect(cluster.target, "photos", job_name="in order") as feed:
        assert feed.batch_size == 16
    order = in_order(cluster, steps * 2)
    for a, b in zip(first, second, strict=True):
        assert order.index(b) == order.index(a) + 1
        assert order.index(a) % 2 == 0


def in_order(cluster: Cluster, batches: int) -> list[list[int]]:
    """The batches as the definition has them: those of the local engine."""
    from infeed_server import Server, ServerOptions
    from infeed_server.pipeline.load import load

    pipelines = load(str(cluster.folder / "pipelines.yaml"))
    with (
        Server(pipelines, ServerOptions("127.0.0.1:0", http=None)) as server,
        infeed.connect(str(server.address), "photos") as feed,
    ):
        return [next(feed).sample_ids.tolist() for _ in range(batches)]


def test_both_engines_make_the_same_samples(cluster: Cluster) -> None:
    """The same definition: the same samples, shapes and types, and the very same pixels."""
    from infeed_server import Server, ServerOptions
    from infeed_server.pipeline.load import load

    def samples(target: str) -> dict[tuple[int, int], tuple[Any, int]]:
        """(epoch, sample id) → image and label."""
        found = {}
        with infeed.connect(target, "photos", epochs=2, batch_size=20) as feed:
            for batch in feed:
                assert (batch["image"].shape, batch["image"].dtype) == ((20, 32, 32, 3), "float32")
                for slot, sample in enumerate(batch.sample_ids.tolist()):
                    found[batch.epoch, sample] = batch["image"][slot], int(batch["label"][slot])
        return found

    pipelines = load(str(cluster.folder / "pipelines.yaml"))
    with Server(pipelines, ServerOptions("127.0.0.1:0", http=None)) as server:
        local = samples(str(server.address))
    remote = samples(cluster.target)
    assert remote.keys() == local.keys()
    for key, (image, label) in local.items():
        assert np.array_equal(remote[key][0], image), key
        assert remote[key][1] == label


def test_ranks_of_a_feed_end_together(cluster: Cluster, photos: SimpleNamespace) -> None:
    feeds = [
        infeed.connect(
            cluster.target, "photos", epochs=1, remainder="drop", shard=infeed.Shard(rank, 2)
        )
        for rank in range(2)
    ]
    shares: list[list[int]] = [[], []]
    steps = 0
    while True:
        batches = [next(feed, None) for feed in feeds]
        if None in batches:
            break
        steps += 1
        for share, batch in zip(shares, batches, strict=True):
            share.extend(batch.sample_ids.tolist())  # type: ignore[union-attr]
    assert batches == [None, None]
    assert steps == photos.count // 32
    assert len(set(shares[0] + shares[1])) == steps * 32
    for feed in feeds:
        feed.close()


def test_a_job_that_has_ended_is_told_to_both_kinds_of_trainers(
    cluster: Cluster, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    go.touch()
    with infeed.connect(cluster.target, "photos", epochs=1, job_name="ended") as feed:
        assert sum(1 for _ in feed)
    with (
        infeed.connect(cluster.target, "photos", epochs=1, job_name="ended") as feed,
        pytest.raises(infeed.InvalidRequestError, match="'ended' gave no batch: it has ended"),
    ):
        next(feed)
    late = cluster.trainer(go, job_name="ended", epochs=1)
    assert late.wait(120) != 0
    assert "ended" in late.stderr
    assert "take another job_name" in late.stderr


def test_finish_transforms_run_at_the_trainer_or_at_the_gateway(cluster: Cluster) -> None:
    with infeed.connect(cluster.target, "photos", epochs=1) as here:
        ours = {batch.epoch: batch["image"].dtype.name for batch in here}
    with infeed.connect(cluster.target, "photos", epochs=1, finish="server") as there:
        theirs = {batch.epoch: batch["image"].dtype.name for batch in there}
    assert ours == theirs == {0: "float32"}


def test_keras_trains_on_two_devices(cluster: Cluster) -> None:
    """`strategy.distribute_datasets_from_function` with `distribute`, under MirroredStrategy."""
    script = Path(__file__).with_name("mirrored_trainer.py")
    trainer = cluster.command_line.start(
        "python", str(script), cluster.target, "photos", cwd=cluster.folder
    )
    result = told(trainer)
    assert result["replicas"] == 2
    assert len(result["losses"]) == 2
    assert all(np.isfinite(loss) and loss > 0 for loss in result["losses"])
