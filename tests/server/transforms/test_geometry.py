"""Crops and flips: the results of `tf.image`, data types, shapes and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.shared.errors import ConfigError
from infeed_server.transforms import (
    CenterCrop,
    RandomCrop,
    RandomFlipLeftRight,
    RandomFlipUpDown,
)


@pytest.mark.parametrize("size", [(40, 50), (39, 50), (11, 7), (1, 1), (40, 3)])
def test_center_crop_equals_tf_image(run: Any, image: Any, size: tuple[int, int]) -> None:
    result = run(CenterCrop(field="image", size=size), {"image": image})["image"]
    np.testing.assert_array_equal(result, tf.image.resize_with_crop_or_pad(image, *size))


@examples(30)
@given(
    shape=st.tuples(st.integers(5, 40), st.integers(5, 40), st.sampled_from([1, 3])),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    key=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2),
)
def test_random_crop_equals_tf_image_for_any_key(
    shape: tuple[int, int, int], size: tuple[int, int], key: tuple[int, int]
) -> None:
    pixels = tf.reshape(tf.range(np.prod(shape)), shape)
    seed = tf.constant(key, tf.int64)
    result = RandomCrop(field="image", size=size).apply({"image": pixels}, seed)["image"]
    expected = tf.image.stateless_random_crop(pixels, [*size, shape[2]], seed)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("crop", [CenterCrop, RandomCrop])
def test_crop_of_too_small_an_image_fails_with_its_size(run: Any, key: Any, crop: Any) -> None:
    transform = crop(field="image", size=(20, 64))
    message = f"{transform.name}: field image must be at least 20 x 64 pixels"
    pixels = tf.zeros([33, 50, 3], tf.uint8)
    sized = tf.data.Dataset.from_generator(
        lambda: iter([pixels]), output_signature=tf.TensorSpec([None, None, 3], tf.uint8)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?s){message}.*33 50"):
        next(iter(sized.map(lambda x: transform.apply({"image": x}, key))))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{message}.* it is \[33, 50\]"):
        transform.apply({"image": pixels}, key)


@pytest.mark.parametrize("crop", [CenterCrop, RandomCrop])
def test_crop_of_too_small_a_static_shape_is_refused(spec: Any, crop: Any) -> None:
    with pytest.raises(ConfigError, match=r"at least 9 x 2 pixels.* it is \[8, 8\]"):
        spec(crop(field="image", size=(9, 2)), {"image": tf.TensorSpec([8, 8, 3], tf.uint8)})


@pytest.mark.parametrize(
    ("flip", "function"),
    [
        (RandomFlipLeftRight(field="image"), tf.image.stateless_random_flip_left_right),
        (RandomFlipUpDown(field="image"), tf.image.stateless_random_flip_up_down),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_flip_equals_tf_image(
    run_each: Any, image: Any, flip: Any, function: Any, dtype: str
) -> None:
    pixels, keys = image.astype(dtype), [(number, 7) for number in range(6)]
    results = [item["image"] for item in run_each(flip, {"image": np.stack([pixels] * 6)}, keys)]
    for key, result in zip(keys, results, strict=True):
        np.testing.assert_array_equal(result, function(pixels, tf.constant(key, tf.int64)))
        assert result.dtype == pixels.dtype
    assert len({result.tobytes() for result in results}) == 2
    assert flip.random
