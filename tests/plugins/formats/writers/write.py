"""Writes photos and their labels in several formats, each with the package that defines it.

    PYTHON tests/plugins/formats/writers/write.py PHOTOS FOLDER [FORMAT...]

PHOTOS has JPEGs and a `labels.csv` of `file,label`. PYTHON has the packages of
requirements/writers.txt, and need not have infeed. FOLDER gets a folder for each format, with the
samples in the sorted order of their names, in several shards.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SHARDS = 3


class Photo(NamedTuple):
    """A sample: the name and the bytes of a JPEG, and its label."""

    name: str
    image: bytes
    label: int


def load(folder: Path) -> list[Photo]:
    with (folder / "labels.csv").open(newline="") as file:
        rows = [row for row in csv.reader(file) if row[1] != "label"]
    return [Photo(name, (folder / name).read_bytes(), int(label)) for name, label in sorted(rows)]


def shards(photos: list[Photo]) -> list[list[Photo]]:
    size = -(-len(photos) // SHARDS)
    return [photos[begin : begin + size] for begin in range(0, len(photos), size)]


def example(photo: Photo) -> bytes:
    """Returns a serialized `tf.train.Example`."""
    import tensorflow as tf

    image = tf.train.BytesList(value=[photo.image])
    label = tf.train.Int64List(value=[photo.label])
    feature = {
        "image": tf.train.Feature(bytes_list=image),
        "label": tf.train.Feature(int64_list=label),
    }
    content: bytes = tf.train.Example(
        features=tf.train.Features(feature=feature)
    ).SerializeToString()
    return content


def write_tfrecord(photos: list[Photo], folder: Path) -> None:
    import tensorflow as tf

    for number, part in enumerate(shards(photos)):
        with tf.io.TFRecordWriter(str(folder / f"train-{number}.tfrecord")) as writer:
            for photo in part:
                writer.write(example(photo))


def write_arrayrecord(photos: list[Photo], folder: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    for number, part in enumerate(shards(photos)):
        file = str(folder / f"train-{number}.array_record")
        writer = ArrayRecordWriter(file, "group_size:1,uncompressed")
        for photo in part:
            writer.write(example(photo))
        writer.close()


def write_webdataset(photos: list[Photo], folder: Path) -> None:
    import webdataset

    size = len(shards(photos)[0])
    with webdataset.ShardWriter(f"{folder}/train-%06d.tar", maxcount=size, verbose=0) as writer:
        for photo in photos:
            key = Path(photo.name).stem
            writer.write({"__key__": key, "jpg": photo.image, "cls": photo.label})


def write_parquet(photos: list[Photo], folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    for number, part in enumerate(shards(photos)):
        columns = {"image": [one.image for one in part], "label": [one.label for one in part]}
        table = pyarrow.table(columns)
        pyarrow.parquet.write_table(table, folder / f"train-{number}.parquet", row_group_size=8)


def write_mds(photos: list[Photo], folder: Path) -> None:
    from mosaic import MDSWriter

    limit = sum(len(photo.image) for photo in photos) // SHARDS
    columns = {"image": "jpeg", "label": "int"}
    with MDSWriter(out=str(folder), columns=columns, size_limit=limit) as writer:
        for photo in photos:
            writer.write({"image": photo.image, "label": photo.label})


def write_tfds(photos: list[Photo], folder: Path) -> None:
    import io

    import tensorflow_datasets as tfds
    from etils import epath

    class Photos(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = epath.Path(folder)

        def _info(self) -> Any:
            classes = max(photo.label for photo in photos) + 1
            features = tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
                    "label": tfds.features.ClassLabel(num_classes=classes),
                }
            )
            return self.dataset_info_from_configs(features=features, disable_shuffling=True)

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            for number, photo in enumerate(photos):
                yield number, {"image": io.BytesIO(photo.image), "label": photo.label}

    config = tfds.download.DownloadConfig(num_shards=SHARDS)
    Photos(data_dir=str(folder)).download_and_prepare(download_config=config)


def write_huggingface(photos: list[Photo], folder: Path) -> None:
    import datasets

    classes = [str(label) for label in range(max(photo.label for photo in photos) + 1)]
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=classes)}
    )
    rows = {
        "image": [{"bytes": photo.image, "path": photo.name} for photo in photos],
        "label": [photo.label for photo in photos],
    }
    data = datasets.Dataset.from_dict(rows, features=features)
    data.save_to_disk(str(folder), num_shards=SHARDS)


WRITERS: dict[str, Callable[[list[Photo], Path], None]] = {
    "tfrecord": write_tfrecord,
    "arrayrecord": write_arrayrecord,
    "webdataset": write_webdataset,
    "parquet": write_parquet,
    "mds": write_mds,
    "tfds": write_tfds,
    "huggingface": write_huggingface,
}


def main(photos: str, folder: str, *formats: str) -> None:
    samples = load(Path(photos))
    for name in formats or WRITERS:
        (Path(folder) / name).mkdir(parents=True)
        WRITERS[name](samples, Path(folder) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
