"""Arrays: with a user function, augmented, and unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.pipeline import sample_graph


def write_digits(data: Path, count: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {
        "image": rng.integers(0, 256, (count, 28, 28), np.uint8),
        "label": rng.integers(0, 10, count),
    }
    np.savez(data / "train.npz", **arrays)
    return arrays


def test_user_function_in_batches_of_128(example: Any, sample_keys: Any) -> None:
    served = example("arrays_function")
    arrays = write_digits(served.data)
    rows = served.read(epochs=2)
    assert rows.sizes == [128] * 4 + [88]
    sample_keys(rows, seed=17)
    slices = {name: array[rows.ids] for name, array in arrays.items()}
    dataset = tf.data.Dataset.from_tensor_slices(slices).map(served.functions().preprocess)
    expected = dataset.batch(len(rows.ids)).get_single_element()
    assert rows["image"].shape[1:] == (28, 28, 1)
    np.testing.assert_array_equal(rows["image"], expected["image"])
    np.testing.assert_array_equal(rows["label"], expected["label"])


def test_flip_and_brightness(example: Any, sample_keys: Any) -> None:
    served = example("arrays_augmented")
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (50, 32, 32, 3), np.uint8)
    labels = rng.integers(0, 10, 50)
    np.savez(served.data / "train.npz", image=images, label=labels)
    rows = served.read(epochs=2)
    assert rows.sizes == [32, 32, 32, 4]

    def augment(image: tf.Tensor, label: tf.Tensor, key: tf.Tensor) -> Any:
        image = tf.image.stateless_random_flip_left_right(image, sample_graph.fold(key, 0))
        image = tf.image.stateless_random_brightness(image, 0.2, sample_graph.fold(key, 1))
        return tf.cast(image, tf.float32) / 255.0, label

    dataset = tf.data.Dataset.from_tensor_slices(
        (images[rows.ids], labels[rows.ids], sample_keys(rows, seed=17))
    )
    image, label = dataset.map(augment).batch(100).get_single_element()
    np.testing.assert_array_equal(rows["image"], image)
    np.testing.assert_array_equal(rows["label"], label)


def test_float_features_with_binary_labels(example: Any, sample_keys: Any) -> None:
    served = example("float_features")
    rng = np.random.default_rng(2)
    features = rng.normal(size=(100, 5)).astype(np.float32)
    labels = rng.integers(0, 2, 100)
    np.savez(served.data / "train.npz", features=features, label=labels)
    rows = served.read(epochs=2)
    assert rows.sizes == [32] * 6 + [8]
    sample_keys(rows, seed=17)
    # The order of tf.data's `shuffle` differs: the samples are compared sorted.
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(100, seed=0).batch(32)
    shuffled = np.concatenate([batch for batch, _ in dataset.as_numpy_iterator()])
    np.testing.assert_array_equal(
        np.sort(rows["features"][:100], axis=0), np.sort(shuffled, axis=0)
    )
    np.testing.assert_array_equal(rows["features"], features[rows.ids])
    np.testing.assert_array_equal(rows["label"], labels[rows.ids])
    assert rows["features"].dtype == np.float32
    assert rows["label"].dtype == np.int64
