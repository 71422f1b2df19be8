"""TFRecords of raw 224x224x3 bytes: unchanged, augmented, and cached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed_server.pipeline import sample_graph

COUNT = 66
SHAPE = [224, 224, 3]


def write_records(data: Path) -> list[str]:
    """Writes two files of records; returns their sorted paths."""
    rng = np.random.default_rng(0)
    files = [str(data / f"part-{number}.tfrecord") for number in range(2)]
    for file, count in zip(files, (40, COUNT - 40), strict=True):
        with tf.io.TFRecordWriter(file) as out:
            for _ in range(count):
                image = tf.train.BytesList(value=[rng.bytes(int(np.prod(SHAPE)))])
                feature = {"image": tf.train.Feature(bytes_list=image)}
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                out.write(example.SerializeToString())
    return files


def parse(record: tf.Tensor) -> tf.Tensor:
    parsed = tf.io.parse_single_example(record, {"image": tf.io.FixedLenFeature([], tf.string)})
    return tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), SHAPE)


def normalize(image: tf.Tensor) -> tf.Tensor:
    return tf.cast(image, tf.float32) / 255.0


def test_normalized_in_batches_of_64(example: Any) -> None:
    raw = example("raw_tfrecords")
    files = write_records(raw.data)
    rows = raw.read()
    dataset = tf.data.TFRecordDataset(files).map(parse).map(normalize).batch(64)
    expected = list(dataset.as_numpy_iterator())
    assert rows.sizes == [len(batch) for batch in expected] == [64, 2]
    assert rows.ids.tolist() == list(range(COUNT))
    np.testing.assert_array_equal(rows["image"], np.concatenate(expected))
    # The wire type is uint8, and by default the remainder is dropped.
    with raw.connect(epochs=1) as feed:
        assert [field.data_type for field in feed.spec.wire_spec] == ["uint8"]
        assert [field.data_type for field in feed.element_spec] == ["float32"]
        assert [batch.mask.all() for batch in feed] == [True]


def augment_in_tf_data(
    files: list[str], ids: np.ndarray, keys: np.ndarray, first: int
) -> np.ndarray:
    """Augments the samples with tf.data; flip and crop have the ordinals `first` and the next."""

    def augment(image: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        image = tf.image.stateless_random_flip_left_right(image, sample_graph.fold(key, first))
        image = tf.image.stateless_random_crop(
            image, [200, 200, 3], sample_graph.fold(key, first + 1)
        )
        return normalize(image)

    # A tensor, since the graph would copy an array.
    images = tf.constant(
        np.stack(list(tf.data.TFRecordDataset(files).map(parse).as_numpy_iterator()))
    )
    dataset = tf.data.Dataset.from_tensor_slices((ids, keys))
    dataset = dataset.map(lambda index, key: augment(tf.gather(images, index), key))
    return dataset.batch(len(ids)).get_single_element().numpy()


@pytest.mark.parametrize("cached", [False, True])
def test_flipped_and_cropped_at_random(example: Any, sample_keys: Any, cached: bool) -> None:
    raw = example("raw_tfrecords_cached") if cached else example("raw_tfrecords_augmented")
    files = write_records(raw.data)
    rows = raw.read(epochs=2)
    assert rows.sizes == [64, 64, 4]
    expected = augment_in_tf_data(
        files, rows.ids, sample_keys(rows, seed=17), first=2 if cached else 1
    )
    np.testing.assert_array_equal(rows["image"], expected)
    # Each epoch augments every sample differently, after the cache too.
    first, second = (
        rows["image"][epoch][np.argsort(rows.ids[epoch])]
        for epoch in (slice(COUNT), slice(COUNT, None))
    )
    pairs = zip(first, second, strict=True)
    assert not any(np.array_equal(image, other) for image, other in pairs)
