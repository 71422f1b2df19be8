"""Resize and pad: the results of `tf.image` and Pillow, data types, shapes and errors."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from pydantic import ValidationError

from infeed.shared.errors import ConfigError
from infeed_server.transforms import CenterCrop, Pad, Resize
from infeed_server.transforms.sizes import ResizeMethod, resize

METHODS = get_args(ResizeMethod)
INTEGERS = ["uint8", "int8", "int16", "uint16", "int32", "int64"]


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_resize_to_float32_equals_tf_image(
    run: Any, image: Any, method: Any, antialias: bool
) -> None:
    transform = Resize(
        field="image", size=(17, 61), method=method, antialias=antialias, dtype="float32"
    )
    result = run(transform, {"image": image})["image"]
    expected = tf.cast(tf.image.resize(image, [17, 61], method, antialias=antialias), tf.float32)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("method", "dtype"),
    # Each kernel with types of 8 bits and wider; each type with a kernel that leaves the range.
    [
        *((method, dtype) for method in METHODS for dtype in ("uint8", "int16")),
        *(("bicubic", dtype) for dtype in INTEGERS if dtype not in ("uint8", "int16")),
    ],
)
def test_resize_rounds_and_clips_integers(run: Any, image: Any, method: Any, dtype: str) -> None:
    limits = np.iinfo(dtype)
    span = (limits.min, limits.max) if limits.bits <= 16 else (-(1 << 20), 1 << 20)
    noise = np.random.default_rng(0).choice(span, image.shape).astype(dtype)
    result = run(Resize(field="image", size=(33, 29), method=method), {"image": noise})["image"]
    floats = tf.image.resize(noise, [33, 29], method).numpy()
    expected = np.clip(np.round(floats), limits.min, limits.max).astype(dtype)
    assert result.dtype == noise.dtype
    np.testing.assert_array_equal(result, expected)


def test_resize_of_large_integers_is_clipped() -> None:
    # In float32, the greatest int32 is rounded to one more.
    most = tf.fill([4, 4, 1], tf.int32.max)
    assert resize(most, (3, 5), "bilinear").numpy().min() > 2**31 - 200


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_resize_keeps_float_types(run: Any, image: Any, dtype: str) -> None:
    floats = tf.cast(image, dtype)
    result = run(Resize(field="image", size=(8, 9)), {"image": floats})["image"]
    np.testing.assert_array_equal(result, tf.cast(tf.image.resize(floats, [8, 9]), dtype))


@pytest.mark.parametrize(
    ("image_size", "short_side", "size"),
    # As torchvision's: int(short_side * longer / shorter).
    [
        ((375, 500), 256, (256, 341)),
        ((500, 333), 256, (384, 256)),
        ((40, 40), 7, (7, 7)),
        ((3, 10), 5, (5, 16)),
        ((1, 65_500), 1, (1, 65_500)),
    ],
)
def test_resize_of_the_short_side_keeps_the_aspect(
    run: Any, image_size: tuple[int, int], short_side: int, size: tuple[int, int]
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*image_size, 3), np.uint8)
    result = run(Resize(field="image", short_side=short_side, antialias=True), {"image": pixels})
    expected = tf.image.resize(pixels, size, antialias=True)
    np.testing.assert_array_equal(result["image"], tf.cast(tf.round(expected), tf.uint8))


@pytest.mark.parametrize(
    ("image_size", "expected"),
    [((60, 90), (40, 60)), ((60, 120), (35, 70)), ((300, 40), (70, 9)), ((40, 70), (40, 70))],
)
def test_the_longer_side_has_a_limit(
    run: Any, image_size: tuple[int, int], expected: tuple[int, int]
) -> None:
    step = Resize(field="image", short_side=40, max_side=70)
    result = run(step, {"image": np.zeros((*image_size, 1), np.uint8)})["image"]
    # As torchvision's `_compute_resized_output_size`, which rounds down twice.
    assert result.shape[:2] == expected
    assert "max_side" not in Resize(field="image", short_side=40).identity()["resize"]
    with pytest.raises(ValueError, match="should have max_side only with short_side"):
        Resize(field="image", short_side=40, max_side=39)


def test_resize_of_the_short_side_and_crop_are_near_pillows(run: Any) -> None:
    small = np.random.default_rng(2).integers(0, 256, (30, 40, 3))
    pixels = tf.cast(tf.image.resize(small, [375, 501], "bicubic"), tf.uint8).numpy()
    resized = run(Resize(field="image", short_side=256, antialias=True), {"image": pixels})
    result = run(CenterCrop(field="image", size=(224, 224)), resized)["image"]
    pillow = Image.fromarray(pixels).resize((342, 256), Image.Resampling.BILINEAR)
    expected = np.asarray(pillow.crop((59, 16, 283, 240)))
    assert np.abs(result.astype(int) - expected).max() <= 2


def test_resize_of_the_short_side_has_a_size_that_varies(spec: Any) -> None:
    fields = {"image": tf.TensorSpec([None, None, 3], tf.uint8)}
    assert spec(Resize(field="image", short_side=8), fields)["image"].shape == [None, None, 3]


def test_resize_of_a_line_to_gigabytes_fails(run_eagerly: Any) -> None:
    line = {"image": np.zeros((1, 65_500, 1), np.uint8)}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"more than .*256, 16768000"):
        run_eagerly(Resize(field="image", short_side=256), line)


@pytest.mark.parametrize("options", [{}, {"size": (2, 2), "short_side": 2}])
def test_resize_has_one_of_size_and_short_side(options: Any) -> None:
    with pytest.raises(ValidationError, match="should have one of size and short_side"):
        Resize(field="image", **options)


@pytest.mark.parametrize("size", [(40, 50), (41, 50), (45, 60), (100, 53)])
def test_pad_equals_tf_image(run: Any, image: Any, size: tuple[int, int]) -> None:
    result = run(Pad(field="image", size=size), {"image": image})["image"]
    np.testing.assert_array_equal(result, tf.image.resize_with_crop_or_pad(image, *size))


def test_pad_makes_images_of_any_size_one_shape(spec: Any) -> None:
    unknown = tf.TensorSpec([None, None, 3], tf.uint8)
    (field,) = spec(Pad(field="image", size=(8, 9)), {"image": unknown}).values()
    assert field.shape == (8, 9, 3)


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 114.0), ("float32", -1.5)])
def test_pad_has_the_value_around_the_image(run: Any, dtype: str, value: float) -> None:
    image = np.ones((2, 3, 1), dtype)
    result = run(Pad(field="image", size=(4, 4), value=value), {"image": image})["image"]
    assert result.dtype == dtype
    assert sorted(np.unique(result)) == sorted([1, value])
    np.testing.assert_array_equal(result[1:3, :3], image)


@pytest.mark.parametrize("value", [256, -1, 0.5])
def test_pad_with_a_value_that_the_field_cannot_hold_is_refused(spec: Any, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"value: {value} is not a uint8"):
        spec(
            Pad(field="image", size=(9, 9), value=value),
            {"image": tf.TensorSpec([8, 8, 3], tf.uint8)},
        )


def test_pad_of_too_large_an_image_fails_with_its_size(run_eagerly: Any, spec: Any) -> None:
    step, message = Pad(field="image", size=(9, 8)), "pad: field image must be at most 9 x 8 pixels"
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{message}.* it is \[9, 9\]"):
        run_eagerly(step, {"image": np.zeros((9, 9, 1), np.uint8)})
    with pytest.raises(ConfigError, match=r"at most 9 x 8 pixels .* \[8, 9\]"):
        spec(step, {"image": tf.TensorSpec([8, 9, 3], tf.uint8)})
