"""The windows of `random_resized_crop`, against their definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from infeed_server.transforms import RandomResizedCrop


def crop_with(**options: Any) -> RandomResizedCrop:
    return RandomResizedCrop(field="image", size=(8, 8), **options)


def windows(crop: RandomResizedCrop, height: int, width: int, count: int) -> Any:
    """Returns y, x, height, width of the windows of `count` keys, int32[count, 4]."""
    shape = tf.Variable([height, width, 3])  # not constant, as the shape of an image of a file

    @tf.autograph.experimental.do_not_convert
    def window(number: tf.Tensor) -> tf.Tensor:
        return crop.choose_window(shape, tf.stack([number, 7]))

    drawn = tf.data.Dataset.range(count).map(window).batch(count)
    return next(drawn.as_numpy_iterator())


def window_by_definition(crop: RandomResizedCrop, height: int, width: int, key: Any) -> list[int]:
    """Returns the window of a key, from torchvision's description of its transform."""
    *drawn, y, x = tf.random.stateless_uniform([22], key, dtype=tf.float64).numpy().tolist()
    low, high = crop.ratio
    for share, aspect in zip(drawn[:10], drawn[10:], strict=True):
        area = height * width * (crop.scale[0] + (crop.scale[1] - crop.scale[0]) * share)
        ratio = math.exp(math.log(low) + (math.log(high) - math.log(low)) * aspect)
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return [int(y * (height - h + 1)), int(x * (width - w + 1)), h, w]
    w, h = width, height
    if width / height < low:
        h = round(width / low)
    elif width / height > high:
        w = round(height * high)
    h, w = max(h, 1), max(w, 1)
    return [(height - h) // 2, (width - w) // 2, h, w]


@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((375, 500), {}),
        ((32, 32), {"scale": (0.5, 1.0)}),
        ((7, 9), {"scale": (0.001, 0.02)}),  # most windows are rounded to no pixel
        ((50, 1), {}),
        ((1, 50), {}),
        ((10, 1001), {"scale": (0.9, 1.0)}),  # none fits
        ((1001, 10), {"scale": (0.9, 1.0)}),
        ((11, 1001), {"scale": (0.9, 1.0)}),  # 14.67 columns are 15
        ((2, 50), {"scale": (0.9, 1.0), "ratio": (0.1, 0.2)}),  # 0.4 columns are 1
        ((500, 375), {"scale": (1.0, 1.0), "ratio": (0.5, 2.0)}),
    ],
    ids=str,
)
def test_windows_are_those_of_the_definition(size: Any, options: Any) -> None:
    crop = crop_with(**options)
    for number, window in enumerate(windows(crop, *size, 60).tolist()):
        assert window == window_by_definition(crop, *size, tf.constant([number, 7], tf.int64))


@pytest.mark.parametrize("method", ["bilinear", "nearest", "area"])
def test_the_window_is_resized(run_each: Any, image: Any, method: Any) -> None:
    crop = RandomResizedCrop(field="image", size=(16, 12), method=method)
    keys = [(0, 0), (1, 0), (0, 1), (2**62, -5), (-1, 2**62)]
    results = run_each(crop, {"image": np.stack([image] * 5)}, keys)
    for key, result in zip(keys, results, strict=True):
        y, x, height, width = crop.choose_window(image.shape, tf.constant(key, tf.int64)).numpy()
        window = tf.image.resize(image[y : y + height, x : x + width], [16, 12], method)
        np.testing.assert_array_equal(result["image"], tf.cast(tf.round(window), tf.uint8))
    assert len({result["image"].tobytes() for result in results}) == 5


@pytest.mark.parametrize(
    "options",
    [{"scale": (0.0, 1.0)}, {"scale": (0.5, 1.1)}, {"ratio": (2.0, 1.0)}, {"ratio": (0.0, 1.0)}],
)
def test_an_invalid_range_is_refused(options: Any) -> None:
    with pytest.raises(ValidationError, match="should be"):
        crop_with(**options)
