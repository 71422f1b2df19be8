"""Exactly-once delivery of JPEGs, for several world sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.harness.tfrecords import example, write_records

import infeed
from infeed_server.pipeline.load import from_yaml

TRANSFORMS = """
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_resized_crop: {field: image, size: [32, 32]}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 16}
"""


@pytest.fixture(scope="module")
def address(shared: Any, photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A server of the photos as a folder with its CSV, and as TFRecords."""
    folder = tmp_path_factory.mktemp("real_photos")
    write_photos(photos, folder)
    file = folder / "pipelines.yaml"
    file.write_text(f"""
pipelines:
  folder:
    source: {{images: {photos.folder}, labels: {photos.folder}/labels.csv}}{TRANSFORMS}
  records:
    source:
      tfrecord: {folder}/part-*.tfrecord
      features: {{image: bytes, label: int64, name: bytes}}{TRANSFORMS}
""")
    return str(shared(from_yaml(str(file))).address)


def write_photos(photos: SimpleNamespace, folder: Path, shards: int = 3) -> None:
    names = sorted(photos.labels)
    for shard in range(shards):
        records = [
            example(
                {
                    "image": [(photos.folder / name).read_bytes()],
                    "name": [name.encode()],
                    "label": [photos.labels[name]],
                }
            )
            for name in names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        ]
        write_records(folder / f"part-{shard}.tfrecord", records)


def test_every_file_is_delivered_once_to_each_world_size(
    address: str, photos: SimpleNamespace
) -> None:
    names = sorted(photos.labels)
    for world_size in (1, 3):
        deliveries: Counter[int] = Counter()
        for rank in range(world_size):
            shard = infeed.Shard(rank, world_size)
            with infeed.connect(address, "records", shard=shard, epochs=1, remainder="pad") as feed:
                for batch in feed:
                    assert batch["image"].shape == (16, 32, 32, 3)
                    ids = batch.sample_ids[batch.mask].tolist()
                    deliveries.update(ids)
                    # Sample ids follow the sorted names of the files.
                    expected = [names[index] for index in ids]
                    assert batch["name"][batch.mask].tolist() == [x.encode() for x in expected]
                    labels = [photos.labels[name] for name in expected]
                    assert batch["label"][batch.mask].tolist() == labels
        assert deliveries == Counter(range(photos.count))


def test_folder_and_records_have_the_same_pixels(address: str) -> None:
    runs = []
    for pipeline in ("folder", "records"):
        with infeed.connect(address, pipeline) as feed:
            runs.append([next(feed) for _ in range(3)])
    for batch, other in zip(*runs, strict=True):
        assert batch["image"].dtype == np.float32
        assert batch["image"].tobytes() == other["image"].tobytes()
