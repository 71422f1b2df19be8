"""Gaussian blur: torchvision's definition, in NumPy, within one level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError
from tests.plugins.augment.twins import pictures

from infeed_augment.blur import RandomGaussianBlur


def torchvision_blur(pixels: Any, kernel: int, sigma: float) -> Any:
    """Returns the rounded means under weights of a Gaussian, with reflected borders."""
    border = kernel // 2
    weights = np.exp(-0.5 * (np.linspace(-border, border, kernel) / sigma) ** 2)
    weights /= weights.sum()
    x = np.pad(pixels.astype(np.float64), [(border, border), (border, border), (0, 0)], "reflect")
    for axis in (0, 1):
        size = pixels.shape[axis]
        parts = [np.take(x, range(n, n + size), axis) * w for n, w in enumerate(weights)]
        x = np.sum(parts, axis=0)
    return np.rint(x)


@pytest.mark.parametrize(("kernel", "sigma"), [(3, (0.5, 0.5)), (7, (0.1, 2)), (15, (3, 9))])
def test_blur_is_torchvisions_within_one_level(
    run_each: Any, kernel: int, sigma: tuple[float, float]
) -> None:
    transform = RandomGaussianBlur(field="x", kernel=kernel, sigma=sigma)
    keys = [(number, 1) for number in range(4)]
    for pixels in pictures():
        if min(pixels.shape[:2]) <= kernel // 2:
            continue
        results = run_each(transform, {"x": np.stack([pixels] * 4)}, keys)
        for key, result in zip(keys, results, strict=True):
            drawn = transform.draw({"x": tf.constant(pixels)}, tf.constant(key, tf.int64))
            expected = torchvision_blur(pixels, kernel, float(drawn["sigma"]))
            difference = np.abs(result["x"] - expected)
            assert difference.max() <= 1
            assert np.mean(difference > 0) < 0.15


def test_weights_are_whole_numbers_with_one_sum() -> None:
    blur = RandomGaussianBlur(field="x", kernel=23)
    for sigma in (0.1, 1.0, 2.0):
        weights = blur._weights(tf.constant(sigma)).numpy()
        assert weights.sum() == 4096
        assert (weights == np.round(weights)).all()
        assert (weights == weights[::-1]).all()


def test_odd_options_and_small_pictures_are_refused(run_eagerly: Any) -> None:
    with pytest.raises(ValidationError, match="kernel: 4 is even; give 5"):
        RandomGaussianBlur(field="x", kernel=4)
    with pytest.raises(ValidationError, match="sigma: should be"):
        RandomGaussianBlur(field="x", kernel=3, sigma=(0.0, 1.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="a blur of 9 pixels is too wide"):
        run_eagerly(RandomGaussianBlur(field="x", kernel=9), {"x": np.zeros((4, 9, 3), np.uint8)})
