"""User functions that the examples refer to as `functions:...`.

They read from the folder `data` beside this file, as the examples do, or from `$DATA`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

DATA = Path(os.environ.get("DATA", Path(__file__).parent / "data"))


def preprocess(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Transforms one sample; a second parameter `key` would receive the sample's random key."""
    image = tf.cast(sample["image"], tf.float32) / 255.0
    return {"image": image[..., tf.newaxis], "label": sample["label"]}


class Gradients:
    """Colour gradients; the class is the brightest corner."""

    fingerprint = "gradients-v1"  # change it when the samples change

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        corner = index % 4
        y, x = np.mgrid[:128, :128] / 127
        light = np.abs(x - corner % 2) * np.abs(y - corner // 2)
        colour = np.random.default_rng(index).uniform(64, 255, 3)
        image = (light[..., np.newaxis] * colour).astype(np.uint8)
        return {"image": image, "label": np.int64(3 - corner)}


def interleaved() -> tf.data.Dataset:
    """Reads numbers from text files, with their squares: elements (int64[256], int64[256])."""
    files = tf.data.Dataset.list_files(str(DATA / "*.txt"), shuffle=False).cache()
    lines = files.interleave(tf.data.TextLineDataset, cycle_length=2, block_length=4)
    numbers = lines.map(lambda line: tf.strings.to_number(line, tf.int64))
    pairs = numbers.map(lambda number: (number, number**2), num_parallel_calls=tf.data.AUTOTUNE)
    return pairs.shuffle(64, seed=5).batch(256, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def with_py_function() -> tf.data.Dataset:
    """Runs Python inside a dataset: elements {features: float32[3], label: int64}."""

    def compute(number: tf.Tensor) -> np.ndarray:
        value = int(number)
        return np.array([value, value / 2, value % 7], np.float32)

    def stage(number: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.py_function(compute, [number], tf.float32)
        return {"features": tf.ensure_shape(features, [3]), "label": number % 2}

    return tf.data.Dataset.range(50).map(stage).cache()


def resized() -> tf.data.Dataset:
    """Reads JPEGs: elements {image: float32[128, 128, 3]}, with values in [0, 1]."""

    def read(file: tf.Tensor) -> dict[str, tf.Tensor]:
        image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
        image = tf.image.convert_image_dtype(image, tf.float32)
        return {"image": tf.image.resize(image, [128, 128])}

    files = tf.data.Dataset.list_files(str(DATA / "*.jpg"), shuffle=False)
    return files.map(read, num_parallel_calls=tf.data.AUTOTUNE)
