"""Folders that TensorFlow Datasets itself prepared, read by the `tfds` source."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.harness.samples import parse
from tests.harness.writers import needs_writers, run_writer

from infeed_formats.tfds.source import TfdsReader, TfdsSource
from infeed_server.sources.images.source import ImagesSource

pytestmark = needs_writers

BUILDER = """
import sys
from pathlib import Path
import numpy as np
import tensorflow_datasets as tfds
from etils import epath
F = tfds.features
out, photos, file_format = sys.argv[1:]
paths = sorted(p for p in Path(photos).glob("*.*") if p.suffix.lower() in (".jpg", ".jpeg"))

class Small(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = epath.Path(out)

    def _info(self):
        features = F.FeaturesDict({
            "image": F.Image(shape=(None, None, 3), encoding_format="jpeg"),
            "label": F.ClassLabel(names=["even", "odd"]),
            "name": F.Text(), "number": np.int32, "flag": np.bool_, "large": np.uint64,
            "matrix": F.Tensor(shape=(2, 3), dtype=np.int16),
            "tokens": F.Sequence(np.int64), "four": F.Sequence(np.float32, length=4),
            "objects": F.Sequence({"box": F.BBoxFeature(), "kind": F.ClassLabel(num_classes=3)}),
            "nested": {"a": {"b": F.Text()}},
            "video": F.Video(shape=(None, 4, 4, 3)),
        })
        return self.dataset_info_from_configs(features=features, disable_shuffling=True)

    def _split_generators(self, _):
        return {"train": self._samples(len(paths)), "test": self._samples(3)}

    def _generate_examples(self):
        raise NotImplementedError

    def _samples(self, count):
        for n in range(count):
            box = {"box": F.BBox(0.0, 0.0, 0.5, 1.0), "kind": n % 3}
            yield n, {
                "image": paths[n], "label": n % 2, "name": paths[n].name, "number": n,
                "flag": n % 2 == 1, "large": 2**64 - 1 - n, "matrix": np.full((2, 3), n, np.int16),
                "tokens": list(range(n % 4)), "four": [n, 0.0, 0.0, 0.5],
                "objects": [box] * (n % 3), "nested": {"a": {"b": str(n)}},
                "video": np.zeros((1, 4, 4, 3), np.uint8),
            }

builder = Small(data_dir=out, file_format=file_format)
config = tfds.download.DownloadConfig(num_shards=3)
builder.download_and_prepare(download_config=config)
"""


def prepare(tmp_path: Path, photos: Path, file_format: str = "tfrecord") -> Path:
    run_writer("-c", BUILDER, tmp_path, photos, file_format)
    return tmp_path / "small" / "1.0.0"


def open_source(folder: Path, split: str = "train", **options: Any) -> TfdsReader:
    return TfdsSource.model_validate({"tfds": str(folder), "split": split, **options}).open()


def test_values_and_photos(tmp_path: Path, few_photos: SimpleNamespace) -> None:
    folder = prepare(tmp_path, few_photos.folder)
    lengths = {"tokens": 4, "objects/box": 2, "objects/kind": 2}
    source, images = (
        open_source(folder, max_length=lengths),
        ImagesSource(images=str(few_photos.folder)).open(),
    )
    assert source.classes["label"] == ("even", "odd")
    assert len(source) == len(images)
    for n in range(len(source)):
        row = parse(source, n)
        assert row["image"] == images.read(np.array([n]))["image"][0]
        assert (row["label"], row["number"], row["flag"]) == (n % 2, n, n % 2 == 1)
        assert (row["number"].dtype, row["large"]) == (np.int32, 2**64 - 1 - n)
        assert row["name"] == os.fsencode(Path(images.provenance(n).file).name)
        assert row["nested/a/b"] == str(n).encode()
        np.testing.assert_array_equal(row["matrix"], np.full((2, 3), n, np.int16))
        np.testing.assert_array_equal(row["four"], np.array([n, 0, 0, 0.5], np.float32))
        tokens, boxes = row["tokens_length"], row["objects/box_length"]
        assert (tokens, boxes, row["objects/kind_length"]) == (n % 4, n % 3, n % 3)
        assert row["tokens"].tolist() == [*range(n % 4), *[0] * (4 - n % 4)]
        box = np.array([0, 0, 0.5, 1], np.float32)
        np.testing.assert_array_equal(row["objects/box"][:boxes], np.tile(box, (boxes, 1)))
        assert not row["objects/box"][boxes:].any()
    assert len(open_source(folder, "test", fields=["name"])) == 3
