"""The same photos in eight formats, written by the packages of these: the same samples by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.harness.server import InfeedServer
from tests.harness.writers import FOLDER, needs_writers, run_writer

import infeed
from infeed_tools.audit.run import audit

pytestmark = needs_writers

FEATURES = "features: {image: bytes, label: int64}"

SOURCES = {
    "images": "images: PHOTOS, labels: PHOTOS/labels.csv",
    "tfrecord": f"tfrecord: FOLDER/tfrecord/*.tfrecord, {FEATURES}",
    "arrayrecord": f"arrayrecord: FOLDER/arrayrecord/*.array_record, {FEATURES}",
    "webdataset": "webdataset: FOLDER/webdataset/*.tar, fields: {image: jpg, label: cls}",
    "parquet": "parquet: FOLDER/parquet/*.parquet",
    "mds": "mds: FOLDER/mds",
    "tfds": "tfds: FOLDER/tfds/photos/1.0.0, split: train",
    "huggingface": "huggingface: FOLDER/huggingface",
}

PIPELINE = """
  {name}:
    source: {{{source}}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - resize: {{field: image, size: [48, 64]}}
    batch: {{size: 16}}
"""

EPOCHS = 2

Samples = dict[int, tuple[bytes, int]]


def read(address: str, name: str) -> tuple[list[list[int]], Samples]:
    """Reads two epochs; returns the ids of each batch, and the pixels and label of each sample."""
    batches: list[list[int]] = []
    samples: Samples = {}
    with infeed.connect(address, name, epochs=EPOCHS, remainder="pad") as feed:
        for batch in feed:
            batches.append(batch.sample_ids[batch.mask].tolist())
            assert batch["image"].shape[1:] == (48, 64, 3)
            assert batch["image"].dtype == np.uint8
            for slot in np.flatnonzero(batch.mask).tolist():
                sample = (batch["image"][slot].tobytes(), int(batch["label"][slot]))
                assert samples.setdefault(int(batch.sample_ids[slot]), sample) == sample
    return batches, samples


def test_eight_formats_have_the_same_samples(
    few_photos: SimpleNamespace, tmp_path: Path, server_process: Callable[..., InfeedServer]
) -> None:
    run_writer(FOLDER / "write.py", few_photos.folder, tmp_path)
    text = "pipelines:" + "".join(
        PIPELINE.format(name=name, source=source) for name, source in SOURCES.items()
    )
    text = text.replace("PHOTOS", str(few_photos.folder)).replace("FOLDER", str(tmp_path))
    server = server_process(text)
    runs: dict[str, Any] = {name: read(server.address, name) for name in SOURCES}
    expected_batches, expected = runs.pop("images")
    labels = [few_photos.labels[name] for name in sorted(few_photos.labels)]
    assert [expected[index][1] for index in range(few_photos.count)] == labels
    assert len({pixels for pixels, _ in expected.values()}) == few_photos.count
    for name, (batches, samples) in runs.items():
        assert batches == expected_batches, name
        counts = Counter(index for batch in batches for index in batch)
        assert counts == dict.fromkeys(range(few_photos.count), EPOCHS), name
        assert samples == expected, name
    report = audit(server.address, "mds", world_size=3, epochs=EPOCHS)
    assert report.exact, report.findings()
