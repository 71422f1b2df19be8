"""Data sets of the benchmarks in tf.data, for infeed's dataset sources and its peers."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from benchmarks.arrays import BATCH, SIDE, float32_batch, uint8_batch
from benchmarks.photos import PATTERN, photo_folder


def float32_batches() -> tf.data.Dataset:
    """Returns an endless repetition of one 38.5 MB batch: only transport costs time."""
    return tf.data.Dataset.from_tensors({"image": tf.constant(float32_batch())}).repeat()


def uint8_batches() -> tf.data.Dataset:
    """Returns an endless repetition of one 9.6 MB batch."""
    return tf.data.Dataset.from_tensors({"image": tf.constant(uint8_batch())}).repeat()


def photos() -> tf.data.Dataset:
    """Returns the equivalent of `photos` in pipelines.yaml, written with tf.data."""

    def load(file: tf.Tensor) -> dict[str, tf.Tensor]:
        image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
        image = tf.image.resize(image, [SIDE, SIDE])
        return {"image": tf.image.random_flip_left_right(image) / 255.0}

    return _batched(load)


def resized_photos() -> tf.data.Dataset:
    """Returns the equivalent of `resized` in pipelines.yaml, written with tf.data."""

    def load(file: tf.Tensor) -> dict[str, tf.Tensor]:
        image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
        image = tf.image.resize(image, [SIDE, SIDE])
        return {"image": tf.cast(tf.round(image), tf.uint8)}

    return _batched(load)


def cropped_photos() -> tf.data.Dataset:
    """Returns the equivalent of `cropped` in pipelines.yaml, with decode and crop fused as
    TensorFlow's guide advises."""

    def load(file: tf.Tensor) -> dict[str, tf.Tensor]:
        encoded = tf.io.read_file(file)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(encoded),
            tf.zeros([1, 0, 4]),
            min_object_covered=0.0,
            aspect_ratio_range=[3 / 4, 4 / 3],
            area_range=[0.08, 1.0],
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
        image = tf.image.resize(image, [SIDE, SIDE])
        return {"image": tf.image.random_flip_left_right(image) / 255.0}

    return _batched(load)


def _batched(load: Callable[[tf.Tensor], dict[str, tf.Tensor]]) -> tf.data.Dataset:
    files = tf.data.Dataset.list_files(str(photo_folder() / PATTERN), shuffle=True, seed=17)
    mapped = files.repeat().map(load, num_parallel_calls=tf.data.AUTOTUNE)
    return mapped.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


BY_NAME = {
    "float32": float32_batches,
    "uint8": uint8_batches,
    "photos": photos,
    "resized": resized_photos,
    "cropped": cropped_photos,
}
