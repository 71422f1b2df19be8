"""Tests of the examples on files: each sample once per epoch, with its label and its shape.

The bits of each transform are compared with TensorFlow's in tests/server/transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

Labels = list[Any] | None
"""The label of each sample in the order of the source; None for a pipeline without labels."""

COUNT, RAW_COUNT, ARRAY_COUNT = 20, 66, 130
"""Samples, at least as many as the slots of a batch."""

CLASSES = ["cat", "dog", "guinea_pig"]


def jpeg(draw_image: Any, number: int) -> bytes:
    """Returns an image of another size for each number, every fifth in greyscale."""
    size = (60 + 37 * number % 190, 50 + 53 * number % 230)
    image = draw_image(number, *size, 1 if number % 5 == 2 else 3)
    return bytes(tf.io.encode_jpeg(image).numpy())


def write_named(data: Path, draw_image: Any) -> Labels:
    # Not written in sorted order; cat.10 sorts before cat.2.
    names = [f"{CLASSES[-number % 3]}.{number}.jpg" for number in range(COUNT)]
    (data / "pets").mkdir()
    for number, name in enumerate(names):
        (data / "pets" / name).write_bytes(jpeg(draw_image, number))
    return [CLASSES.index(name.partition(".")[0]) for name in sorted(names)]


def write_mixed(data: Path, draw_image: Any) -> Labels:
    (data / "mixed").mkdir()
    for number in range(COUNT):
        suffix = ("jpg", "png", "JPEG", "PNG", "jpeg")[number % 5]
        encode = tf.io.encode_png if suffix.lower() == "png" else tf.io.encode_jpeg
        image = draw_image(number, 60, 80, 4 if suffix == "png" else 1 if number % 4 else 3)
        (data / "mixed" / f"{number:02}.{suffix}").write_bytes(encode(image).numpy())
    (data / "mixed" / "notes.txt").write_text("not an image")
    return None


def write_csv(data: Path, draw_image: Any) -> Labels:
    (data / "pictures").mkdir()
    labels = [number * 7 % 5 for number in range(COUNT)]
    lines = [f"photo-{number:02}.jpg,{label}" for number, label in enumerate(labels)]
    for number in range(COUNT):
        (data / "pictures" / f"photo-{number:02}.jpg").write_bytes(jpeg(draw_image, number))
    (data / "labels.csv").write_text("\n".join(["file,label", *lines[::-1]]) + "\n")
    return labels


def write_records(data: Path, features: list[dict[str, bytes]]) -> None:
    """Writes two files of records with bytes features."""
    for part in range(2):
        with tf.io.TFRecordWriter(str(data / f"part-{part}.tfrecord")) as out:
            for values in features[part::2]:
                lists = {k: tf.train.BytesList(value=[x]) for k, x in values.items()}
                feature = {k: tf.train.Feature(bytes_list=x) for k, x in lists.items()}
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                out.write(example.SerializeToString())


def write_string_labels(data: Path, draw_image: Any) -> Labels:
    labels = [37 * number for number in range(COUNT)]
    write_records(
        data,
        [
            {"image": jpeg(draw_image, number), "label": str(label).encode()}
            for number, label in enumerate(labels)
        ],
    )
    return labels[::2] + labels[1::2]


def write_raw(data: Path, _: Any) -> Labels:
    random = np.random.default_rng(0)
    write_records(data, [{"image": random.bytes(224 * 224 * 3)} for _ in range(RAW_COUNT)])
    return None


def write_arrays(data: Path, _: Any, **fields: Any) -> Labels:
    labels = np.random.default_rng(1).integers(0, 2, ARRAY_COUNT)
    np.savez(data / "train.npz", label=labels, **fields)
    return [int(label) for label in labels]


def write_digits(data: Path, draw_image: Any) -> Labels:
    return write_arrays(data, draw_image, image=np.zeros((ARRAY_COUNT, 28, 28), np.uint8))


def write_small(data: Path, draw_image: Any) -> Labels:
    return write_arrays(data, draw_image, image=np.zeros((ARRAY_COUNT, 32, 32, 3), np.uint8))


def write_features(data: Path, draw_image: Any) -> Labels:
    return write_arrays(data, draw_image, features=np.ones((ARRAY_COUNT, 5), np.float32))


Write = Callable[[Path, Any], Labels]


def check(served: Any, write: Write, draw_image: Any, shape: tuple[int, ...]) -> None:
    """Serves the example over data that `write` makes, and reads two epochs."""
    labels = write(served.data, draw_image)
    rows = served.read(epochs=2)
    for ids in rows.ids.reshape(2, -1):
        assert sorted(ids.tolist()) == list(range(len(rows.ids) // 2))
    (name,) = rows.fields.keys() - {"label"}
    assert (rows[name].shape[1:], rows[name].dtype) == (shape, np.float32)
    assert 0 <= rows[name].min() <= rows[name].max() <= 1
    assert ("label" in rows.fields) is (labels is not None)
    if labels is not None:
        assert rows["label"].tolist() == [labels[index] for index in rows.ids]
        assert rows["label"].dtype == np.int64


@pytest.mark.parametrize(
    ("name", "write", "shape"),
    [
        ("folder_file_name_labels", write_named, (128, 128, 3)),
        ("folder_mixed", write_mixed, (224, 224, 3)),
        ("folder_csv_labels", write_csv, (224, 224, 3)),
        ("folder_csv_labels_augmented", write_csv, (224, 224, 3)),
        ("tfrecord_string_labels", write_string_labels, (128, 128, 3)),
        ("raw_tfrecords", write_raw, (224, 224, 3)),
        ("raw_tfrecords_augmented", write_raw, (200, 200, 3)),
        ("raw_tfrecords_cached", write_raw, (200, 200, 3)),
        ("arrays_function", write_digits, (28, 28, 1)),
        ("arrays_augmented", write_small, (32, 32, 3)),
        ("float_features", write_features, (5,)),
    ],
)
def test_example_has_each_sample_once_per_epoch(
    example: Any, draw_image: Any, name: str, write: Write, shape: tuple[int, ...]
) -> None:
    check(example(name), write, draw_image, shape)
