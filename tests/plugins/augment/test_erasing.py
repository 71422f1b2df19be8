"""Random erasing: torchvision's distribution of rectangles, and what covers them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from infeed_augment.erasing import RandomErasing

PIXELS = np.full((40, 60, 3), 9, np.uint8)


def windows(transform: RandomErasing, count: int) -> Any:
    """Returns y, x, height and width for many keys."""
    keys = tf.constant([[number, 5] for number in range(count)], tf.int64)
    drawn = tf.map_fn(
        lambda key: tf.stack([*transform.draw_field(PIXELS, key).values()]), keys, tf.int32
    )
    return drawn.numpy()


def test_rectangles_have_torchvisions_distribution() -> None:
    drawn = windows(RandomErasing(field="x", probability=0.8), 2000)
    covered = drawn[drawn[:, 2] > 0]
    assert abs(len(covered) / len(drawn) - 0.8) < 0.04
    height, width = covered[:, 2], covered[:, 3]
    rng = np.random.default_rng(0)
    areas, ratios = [], []
    while len(areas) < 4000:
        area = 40 * 60 * rng.uniform(0.02, 0.33)
        ratio = np.exp(rng.uniform(np.log(0.3), np.log(3.3)))
        h, w = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if h < 40 and w < 60:
            areas.append(h * w)
            ratios.append(h / w)
    for own, twin in ((height * width, areas), (height / width, ratios)):
        shares = np.linspace(0.05, 0.95, 10)
        np.testing.assert_allclose(np.quantile(own, shares), np.quantile(twin, shares), rtol=0.15)
    assert ((covered[:, 0] + height <= 40) & (covered[:, 1] + width <= 60)).all()
    middle = (covered[:, 1] / (60 - width)).mean()
    assert abs(middle - 0.5) < 0.03


@pytest.mark.parametrize("value", [0, 200, None])
def test_the_rectangle_alone_is_covered(run_each: Any, value: int | None) -> None:
    transform = RandomErasing(field="x", probability=1.0, value=value)
    keys = [(number, 5) for number in range(8)]
    results = run_each(transform, {"x": np.stack([PIXELS] * 8)}, keys)
    for (y, x, height, width), result in zip(windows(transform, 8), results, strict=True):
        inside = result["x"][y : y + height, x : x + width]
        if value is None:
            assert inside.std() > 40
        else:
            assert (inside == value).all()
        assert (result["x"] != 9).any(axis=2).sum() <= height * width
    assert len({result["x"].tobytes() for result in results}) == 8


def test_nothing_is_covered_at_probability_zero(run: Any) -> None:
    transform = RandomErasing(field="x", probability=0.0, value=None)
    np.testing.assert_array_equal(run(transform, {"x": PIXELS})["x"], PIXELS)
    with pytest.raises(ValidationError, match=r"scale: should be \[min, max\]"):
        RandomErasing(field="x", scale=(0.5, 1.5))
