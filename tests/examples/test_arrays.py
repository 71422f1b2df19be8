"""Arrays: with a user function, augmented, and unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
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


def fit(dataset: tf.data.Dataset) -> tuple[list[float], list[np.ndarray]]:
    """Trains two epochs; returns the loss of each and the final weights."""
    keras = tf.keras
    keras.utils.set_random_seed(3)
    layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    history = model.fit(dataset, epochs=2, steps_per_epoch=2, shuffle=False, verbose=0)
    return history.history["loss"], model.get_weights()


def test_keras_fit_equals_fit_on_tf_data(example: Any) -> None:
    served = example("arrays_function")
    arrays = write_digits(served.data)
    with served.connect(epochs=2) as feed:
        assert feed.steps_per_epoch == 2
        dataset = infeed.tensorflow.from_generator(feed)
        assert [spec.shape.as_list() for spec in dataset.element_spec] == [[128, 28, 28, 1], [128]]
        losses, weights = fit(dataset)
    with served.connect(epochs=2) as feed:
        ids = np.concatenate([batch.sample_ids for batch in feed])
    image = tf.cast(arrays["image"][ids], tf.float32)[..., tf.newaxis] / 255.0
    reference = tf.data.Dataset.from_tensor_slices((image, arrays["label"][ids])).batch(128)
    expected_losses, expected_weights = fit(reference)
    # TensorFlow's threads add gradients in any order, so the last bits may differ.
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for actual, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
    assert losses[1] != pytest.approx(losses[0], rel=1e-3)


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
