"""Random changes of colour: the results of `tf.image`, data types, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_augment.colour import (
    RandomBrightness,
    RandomContrast,
    RandomHue,
    RandomSaturation,
)

KEYS = [(number, 7) for number in range(6)]
CASES = [
    (RandomBrightness(field="x", max_delta=0.3), tf.image.stateless_random_brightness, (0.3,)),
    (RandomContrast(field="x", lower=0.5, upper=2), tf.image.stateless_random_contrast, (0.5, 2.0)),
    (RandomSaturation(field="x", lower=0, upper=2), tf.image.stateless_random_saturation, (0, 2)),
    (RandomHue(field="x", max_delta=0.4), tf.image.stateless_random_hue, (0.4,)),
]
NAMES = [case[0].name for case in CASES]


@pytest.mark.parametrize(("transform", "function", "options"), CASES, ids=NAMES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_result_equals_tf_image(
    run_each: Any, image: Any, transform: Any, function: Any, options: Any, dtype: str
) -> None:
    pixels = image if dtype == "uint8" else (image / np.float32(255)).astype(np.float32)
    keys = [*KEYS, *KEYS]
    results = [item["x"] for item in run_each(transform, {"x": np.stack([pixels] * 12)}, keys)]
    for key, result in zip(keys, results, strict=True):
        expected = function(pixels, *options, seed=tf.constant(key, tf.int64))
        assert result.dtype == pixels.dtype
        np.testing.assert_array_equal(result, expected)
    bits = [result.tobytes() for result in results]
    assert bits[:6] == bits[6:]  # they depend on the key alone
    assert len(set(bits)) > 1
    assert transform.random


@pytest.mark.parametrize("transform", [case[0] for case in CASES], ids=NAMES)
def test_shape_is_kept_and_bytes_are_refused(spec: Any, transform: Any) -> None:
    with pytest.raises(ConfigError, match=f"{transform.name}: field 'x' .*decode_image"):
        spec(transform, {"x": tf.TensorSpec([], tf.string)})
    before = {"x": tf.TensorSpec([8, None, 3], tf.uint8)}
    assert spec(transform, before)["x"].shape.as_list() == [8, None, 3]


@pytest.mark.parametrize("transform", [CASES[2][0], CASES[3][0]], ids=NAMES[2:])
def test_saturation_and_hue_of_one_channel_are_refused(spec: Any, transform: Any) -> None:
    with pytest.raises(ConfigError, match=r"holds uint8\[8, 8, 1\]; 3 channels are required"):
        spec(transform, {"x": tf.TensorSpec([8, 8, 1], tf.uint8)})
