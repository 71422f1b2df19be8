from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from infeed.errors import ConfigError
from infeed_server.transforms import (
    RandomBrightness,
    RandomContrast,
    RandomFlipLeftRight,
    RandomFlipUpDown,
    RandomHue,
    RandomSaturation,
)

KEYS = [(number, 7) for number in range(6)]
CASES = [
    (RandomFlipLeftRight(field="x"), tf.image.stateless_random_flip_left_right, ()),
    (RandomFlipUpDown(field="x"), tf.image.stateless_random_flip_up_down, ()),
    (RandomBrightness(field="x", max_delta=0.3), tf.image.stateless_random_brightness, (0.3,)),
    (RandomContrast(field="x", lower=0.5, upper=2), tf.image.stateless_random_contrast, (0.5, 2.0)),
    (RandomSaturation(field="x", lower=0, upper=2), tf.image.stateless_random_saturation, (0, 2)),
    (RandomHue(field="x", max_delta=0.4), tf.image.stateless_random_hue, (0.4,)),
]
NAMES = [case[0].name for case in CASES]


@pytest.mark.parametrize(("transform", "function", "options"), CASES, ids=NAMES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_result_is_that_of_tf_image(
    run_each: Any, image: Any, transform: Any, function: Any, options: Any, dtype: str
) -> None:
    pixels = image if dtype == "uint8" else (image / np.float32(255)).astype(np.float32)
    keys = [*KEYS, *KEYS]
    results = [it["x"] for it in run_each(transform, {"x": np.stack([pixels] * 12)}, keys)]
    for key, result in zip(keys, results, strict=True):
        expected = function(pixels, *options, seed=tf.constant(key, tf.int64))
        assert result.dtype == pixels.dtype
        np.testing.assert_array_equal(result, expected)
    bits = [result.tobytes() for result in results]
    assert bits[:6] == bits[6:]  # drawn from the key alone
    assert len(set(bits)) > 1
    assert transform.random


@pytest.mark.parametrize("transform", [case[0] for case in CASES], ids=NAMES)
def test_bytes_are_refused_and_shapes_kept(spec: Any, transform: Any) -> None:
    with pytest.raises(ConfigError, match=f"{transform.name}: field 'x' .*decode_image"):
        spec(transform, {"x": tf.TensorSpec([], tf.string)})
    before = {"x": tf.TensorSpec([8, None, 3], tf.uint8)}
    assert spec(transform, before)["x"].shape.as_list() == [8, None, 3]


@pytest.mark.parametrize("transform", [case[0] for case in CASES[3:]], ids=NAMES[3:])
def test_float16_has_no_kernel_and_is_refused(spec: Any, transform: Any) -> None:
    with pytest.raises(ConfigError, match="holds float16; it takes uint8"):
        spec(transform, {"x": tf.TensorSpec([8, 8, 3], tf.float16)})


@pytest.mark.parametrize("transform", [CASES[4][0], CASES[5][0]], ids=NAMES[4:])
def test_saturation_and_hue_take_three_channels(spec: Any, transform: Any) -> None:
    with pytest.raises(ConfigError, match=r"holds uint8\[8, 8, 1\]; it takes 3 channels"):
        spec(transform, {"x": tf.TensorSpec([8, 8, 1], tf.uint8)})


def test_brightness_takes_any_shape(run: Any) -> None:
    values = np.linspace(0, 1, 28 * 28, dtype=np.float32).reshape(28, 28)
    result = run(RandomBrightness(field="x", max_delta=0.1), {"x": values})["x"]
    expected = tf.image.stateless_random_brightness(values, 0.1, tf.constant([17, 4], tf.int64))
    np.testing.assert_array_equal(result, expected)


def test_brightness_refuses_what_is_no_image(spec: Any) -> None:
    with pytest.raises(ConfigError, match="holds bool; it takes uint8"):
        spec(RandomBrightness(field="x", max_delta=0.1), {"x": tf.TensorSpec([8], tf.bool)})


def test_ranges_are_checked() -> None:
    with pytest.raises(
        ValidationError, match=r"upper \(1.0\) should be greater than lower \(1.0\)"
    ):
        RandomContrast(field="x", lower=1.0, upper=1.0)
    with pytest.raises(ValidationError):
        RandomSaturation(field="x", lower=-1.0, upper=1.0)
    with pytest.raises(ValidationError):
        RandomHue(field="x", max_delta=0.6)
    with pytest.raises(ValidationError):
        RandomBrightness(field="x", max_delta=float("nan"))
