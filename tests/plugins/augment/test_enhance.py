"""Enhancements: the bits of Pillow's ImageEnhance, and the draws of a jitter."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import ImageEnhance
from tests.plugins.augment.twins import by_pillow, pictures

from infeed_augment import enhance
from infeed_augment.enhance import Grayscale, RandomColorJitter, Sharpness

CASES = [
    (enhance.adjust_brightness, ImageEnhance.Brightness),
    (enhance.adjust_contrast, ImageEnhance.Contrast),
    (enhance.adjust_saturation, ImageEnhance.Color),
    (enhance.adjust_sharpness, ImageEnhance.Sharpness),
]


@pytest.mark.parametrize(("function", "twin"), CASES)
def test_blends_have_the_bits_of_pillow(function: Any, twin: Any) -> None:
    for pixels in pictures():
        for factor in (0, 0.3, 1, 1.37, 2.5):
            result = function(tf.constant(pixels), tf.constant(factor, tf.float32))
            expected = by_pillow(lambda picture, f: twin(picture).enhance(f), pixels, factor)
            np.testing.assert_array_equal(result, expected, f"{pixels.shape} {factor}")


def test_grey_and_sharp_pictures_are_blends(run: Any, image: Any) -> None:
    grey = run(Grayscale(field="x"), {"x": image})["x"]
    expected = by_pillow(lambda picture: picture.convert("L").convert("RGB"), image)
    np.testing.assert_array_equal(grey, expected)
    sharp = run(Sharpness(field="x", factor=1.8), {"x": image})["x"]
    twin = by_pillow(lambda picture: ImageEnhance.Sharpness(picture).enhance(1.8), image)
    np.testing.assert_array_equal(sharp, twin)


def test_hue_is_torchvisions_within_one_level(image: Any) -> None:
    result = enhance.adjust_hue(tf.constant(image), tf.constant(0.3)).numpy()
    for pixel, shifted in np.stack([image, result], 2)[::9, ::9].reshape(-1, 2, 3):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
        expected = 255 * np.array(colorsys.hsv_to_rgb((hue + 0.3) % 1, saturation, value))
        np.testing.assert_allclose(shifted, expected, atol=1)


def test_jitter_applies_its_draws_in_their_order(run_each: Any, image: Any) -> None:
    jitter = RandomColorJitter(field="x", brightness=0.4, contrast=[0.5, 0.9], hue=0.1)
    assert jitter.brightness == (0.6, 1.4)
    keys = [(number, 3) for number in range(40)]
    results = run_each(jitter, {"x": np.stack([image] * len(keys))}, keys)
    orders, numbers = [], []
    for key, result in zip(keys, results, strict=True):
        drawn = jitter.draw({"x": tf.constant(image)}, tf.constant(key, tf.int64))
        names = [name for name in drawn if not name.endswith("_place")]
        assert names == ["brightness", "contrast", "hue"]
        orders.append(sorted(names, key=lambda name: int(drawn[f"{name}_place"])))
        expected = tf.constant(image)
        for name in orders[-1]:
            expected = getattr(enhance, f"adjust_{name}")(expected, drawn[name])
        np.testing.assert_array_equal(result["x"], expected)
        numbers.append([float(drawn[name]) for name in names])
    assert len({tuple(order) for order in orders}) == 6
    low, high = np.min(numbers, axis=0), np.max(numbers, axis=0)
    assert (low >= np.float32([0.6, 0.5, -0.1])).all()
    assert (high <= np.float32([1.4, 0.9, 0.1])).all()
    assert (high - low > 0.7 * np.array([0.8, 0.4, 0.2])).all()
    plain = run_each(RandomColorJitter(field="x"), {"x": image[np.newaxis]}, keys[:1])
    np.testing.assert_array_equal(plain[0]["x"], image)
