from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf

from infeed.errors import ConfigError
from infeed_server.transforms import Resize
from infeed_server.transforms.resize import _MEANS as MEANS
from infeed_server.transforms.resize import Method

METHODS = get_args(Method)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_floats_are_those_of_tf_image(run: Any, image: Any, method: Any, antialias: bool) -> None:
    transform = Resize(
        field="image", size=(17, 61), method=method, antialias=antialias, dtype="float32"
    )
    result = run(transform, {"image": image})["image"]
    expected = tf.cast(tf.image.resize(image, [17, 61], method, antialias=antialias), tf.float32)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)


INTEGERS = ["uint8", "int8", "int16", "uint16", "int32", "int64"]


@pytest.mark.parametrize(
    ("method", "dtype"),
    # Each kernel, for types of 8 bits and wider ones; and each type, with a kernel that leaves
    # the range of its pixels.
    [
        *((method, dtype) for method in METHODS for dtype in ("uint8", "int16")),
        *(("bicubic", dtype) for dtype in INTEGERS if dtype not in ("uint8", "int16")),
    ],
)
def test_integers_are_the_floats_rounded_and_cut(
    run: Any, image: Any, method: Any, dtype: str
) -> None:
    limits = np.iinfo(dtype)
    span = (limits.min, limits.max) if limits.bits <= 16 else (-(1 << 20), 1 << 20)
    noise = np.random.default_rng(0).choice(span, image.shape).astype(dtype)
    result = run(Resize(field="image", size=(33, 29), method=method), {"image": noise})["image"]
    floats = tf.image.resize(noise, [33, 29], method).numpy()
    expected = np.clip(np.round(floats), limits.min, limits.max).astype(dtype)
    assert result.dtype == noise.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("method", "antialias"),
    # The methods that are not cut to the range, for they are means; and the others smoothed.
    [
        *((method, antialias) for method in sorted(MEANS) for antialias in (False, True)),
        *((method, True) for method in METHODS if method not in MEANS and method != "nearest"),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_nothing_leaves_the_range_of_8_bits(
    run_each: Any, method: Any, dtype: str, antialias: bool
) -> None:
    limits = np.iinfo(dtype)
    ends = [(limits.min,), (limits.max,), (limits.min, limits.max)]
    rng = np.random.default_rng(1)
    pixels = np.stack([rng.choice(end, (37, 53, 3)).astype(dtype) for end in ends])
    for size in [(5, 90), (120, 61)] if method in MEANS else [(5, 90)]:
        resize = Resize(field="image", size=size, method=method, antialias=antialias)
        floats = tf.image.resize(pixels, size, method, antialias=antialias).numpy()
        expected = np.clip(np.round(floats), limits.min, limits.max).astype(dtype)
        results = run_each(resize, {"image": pixels}, [(17, 4)] * 3)
        np.testing.assert_array_equal([result["image"] for result in results], expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_float_types_are_kept(run: Any, image: Any, dtype: str) -> None:
    floats = tf.cast(image, dtype)
    result = run(Resize(field="image", size=(8, 9)), {"image": floats})["image"]
    np.testing.assert_array_equal(result, tf.cast(tf.image.resize(floats, [8, 9]), dtype))


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_the_same_size_changes_nothing_but_the_type(run: Any, image: Any, dtype: Any) -> None:
    result = run(Resize(field="image", size=(40, 50), dtype=dtype), {"image": image})["image"]
    assert result.dtype == (dtype or np.uint8)
    np.testing.assert_array_equal(result, image)


def test_the_shape_becomes_static(spec: Any) -> None:
    before = {"image": tf.TensorSpec([None, None, 3], tf.uint8)}
    assert spec(Resize(field="image", size=(4, 5)), before)["image"].shape == [4, 5, 3]


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (tf.TensorSpec([], tf.string), "holds encoded bytes; put decode_image before it"),
        (tf.TensorSpec([4, 4, 3], tf.uint32), "holds uint32; it takes uint8, int8"),
        (tf.TensorSpec([28, 28], tf.uint8), r"shape \[28, 28\], not \[height, width, channels\]"),
    ],
)
def test_what_is_no_image_is_refused(spec: Any, before: tf.TensorSpec, told: str) -> None:
    with pytest.raises(ConfigError, match=f"resize: field 'image' .*{told}"):
        spec(Resize(field="image", size=(4, 5)), {"image": before})
