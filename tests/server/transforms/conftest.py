"""Fixtures that run a transform: traced into a graph, as a server does, or eagerly."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

Run = Callable[..., Any]


@pytest.fixture
def key() -> tf.Tensor:
    return tf.constant([17, 4], tf.int64)


@pytest.fixture
def run(run_each: Run) -> Run:
    """`run(transform, {field: value}, key)` returns the fields as NumPy arrays."""

    def run(transform: Any, sample: dict[str, Any], key: Any = (17, 4)) -> dict[str, Any]:
        # Not through NumPy, whose byte strings lose trailing zeros.
        rows = {name: tf.constant(value)[tf.newaxis] for name, value in sample.items()}
        result: dict[str, Any] = run_each(transform, rows, [key])[0]
        return result

    return run


@pytest.fixture
def run_each() -> Run:
    """`run_each(transform, {field: [value, ...]}, [key, ...])` returns each sample's fields.

    All samples use one graph, as in a server; tracing takes longer than all the rest.
    """

    def run(transform: Any, samples: dict[str, Any], keys: Any) -> list[dict[str, Any]]:
        rows = {name: tf.convert_to_tensor(values) for name, values in samples.items()}
        fields = {name: tf.TensorSpec(row.shape[1:], row.dtype) for name, row in rows.items()}
        # The server traces without AutoGraph; `Map` converts a user's function itself.
        step = tf.function(transform.apply, autograph=False).get_concrete_function(
            fields, tf.TensorSpec([2], tf.int64)
        )
        results = []
        for number, key in enumerate(tf.constant(keys, tf.int64)):
            result = step({name: row[number] for name, row in rows.items()}, key)
            results.append({name: value.numpy() for name, value in result.items()})
        return results

    return run


@pytest.fixture
def run_eagerly() -> Run:
    """`run_eagerly(transform, {field: value}, key)`: `run` as for the error of a bad sample.

    Tracing a decoder takes longer than many of these calls.
    """

    def run(transform: Any, sample: dict[str, Any], key: Any = (17, 4)) -> dict[str, Any]:
        fields = {name: tf.constant(value) for name, value in sample.items()}
        result = transform.apply(fields, tf.constant(key, tf.int64))
        return {name: value.numpy() for name, value in result.items()}

    return run


@pytest.fixture
def spec() -> Callable[..., dict[str, tf.TensorSpec]]:
    """`spec(transform, {field: tensor spec})` returns the specs of the fields after it."""

    def spec(transform: Any, before: dict[str, tf.TensorSpec]) -> dict[str, tf.TensorSpec]:
        traced = tf.function(transform.apply, autograph=False).get_concrete_function(
            before, tf.TensorSpec([2], tf.int64)
        )
        outputs: dict[str, tf.TensorSpec] = traced.structured_outputs
        return {name: tf.TensorSpec(output.shape, output.dtype) for name, output in outputs.items()}

    return spec


@pytest.fixture(scope="session")
def image() -> Any:
    """uint8 [40, 50, 3], smooth enough for a JPEG."""
    small = np.random.default_rng(3).integers(0, 256, (5, 6, 3))
    return tf.cast(tf.image.resize(small, [40, 50]), tf.uint8).numpy()


@pytest.fixture
def jpegs(photos: SimpleNamespace) -> list[bytes]:
    """Some JPEGs of the data set, including a greyscale one."""
    contents = [(photos.folder / name).read_bytes() for name in sorted(photos.labels)[:60]]
    grey = [jpeg for jpeg in contents if tf.io.extract_jpeg_shape(jpeg)[2] == 1]
    return [*contents[:5], *(grey[:1] or [tf.io.encode_jpeg(np.zeros((90, 90, 1), "u1")).numpy()])]
