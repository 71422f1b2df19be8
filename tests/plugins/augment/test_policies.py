"""RandAugment and TrivialAugment: each operation by Pillow, torchvision's magnitudes, and what is
drawn how often."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps
from pydantic import ValidationError
from tests.plugins.augment.test_warp import picture

from infeed_augment.policies import RandAugment, TrivialAugment

RAND = RandAugment(field="x")
TRIVIAL = TrivialAugment(field="x")
BLENDS = {
    "brightness": ImageEnhance.Brightness,
    "color": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}


def by_pillow(image: Any, name: str, m: float) -> Any:
    """Returns what torchvision's `_apply_op` makes of a picture of Pillow's."""
    matrices = {
        "shear_x": (1, m, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, m, 1, 0),
        "translate_x": (1, 0, -m, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, -m),
    }
    if name in matrices:
        matrix: Any = matrices[name]
        return image.transform(image.size, Image.Transform.AFFINE, matrix)
    if name in BLENDS:
        return BLENDS[name](image).enhance(float(np.float32(1) + np.float32(m)))
    of_pixels: dict[str, Any] = {
        "identity": lambda: image,
        "rotate": lambda: image.rotate(m),
        "posterize": lambda: ImageOps.posterize(image, int(m)),
        "solarize": lambda: ImageOps.solarize(image, m),
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
    }
    return of_pixels[name]()


def torchvision_magnitudes(bins: int, shape: tuple[int, ...], *, is_wide: bool) -> dict[str, Any]:
    """Returns torchvision's table of magnitudes, without signs."""
    linear, lost = np.linspace(0, 1, bins), 6 if is_wide else 4
    shift = (32.0, 32.0) if is_wide else (150 / 331 * shape[1], 150 / 331 * shape[0])
    blend = 0.99 if is_wide else 0.9
    return {
        **dict.fromkeys(("shear_x", "shear_y"), (0.99 if is_wide else 0.3) * linear),
        "translate_x": (linear * shift[0] + 1e-4).astype(int),
        "translate_y": (linear * shift[1] + 1e-4).astype(int),
        "rotate": (135 if is_wide else 30) * linear,
        **dict.fromkeys(BLENDS, blend * linear),
        "posterize": 8 - np.round(np.arange(bins) / ((bins - 1) / lost)),
        "solarize": np.ceil(np.linspace(255, 0, bins) - 1e-4),
        **dict.fromkeys(("identity", "autocontrast", "equalize"), np.zeros(bins)),
    }


def draws(transform: Any, key: Any) -> list[tuple[str, float]]:
    drawn = transform.draw({"x": tf.constant(picture())}, tf.constant(key, tf.int64))
    values = [*drawn.values()]
    return [
        (name.numpy().decode(), float(magnitude))
        for name, magnitude in zip(values[::2], values[1::2], strict=True)
    ]


@pytest.mark.parametrize("transform", [RAND, TRIVIAL], ids=lambda transform: transform.name)
def test_operations_are_pillows(run_each: Any, transform: Any) -> None:
    keys = [(number, 2) for number in range(60)]
    results = run_each(transform, {"x": np.stack([picture()] * len(keys))}, keys)
    seen = set()
    for key, result in zip(keys, results, strict=True):
        image, is_exact = Image.fromarray(picture()), True
        for name, magnitude in draws(transform, key):
            image = by_pillow(image, name, magnitude)
            is_exact &= name not in ("shear_x", "shear_y", "rotate")
            seen.add(name)
        share = (result["x"] == np.asarray(image)).all(axis=2).mean()
        assert share == 1 if is_exact else share > 0.9, draws(transform, key)
    assert len(seen) == 14 or (transform is TRIVIAL and len(seen) > 10)


def test_draws_are_torchvisions() -> None:
    rows = torchvision_magnitudes(31, (60, 80), is_wide=False)
    drawn = [pair for n in range(300) for pair in draws(RAND, (n, 1))]
    for name, magnitude in drawn:
        assert abs(abs(magnitude) - abs(rows[name][9])) < 1e-4, name
    counts = Counter(name for name, _ in drawn)
    assert set(counts) == set(rows)
    assert max(abs(count - 600 / 14) for count in counts.values()) < 25
    signs = [magnitude > 0 for name, magnitude in drawn if name in ("rotate", "color", "shear_x")]
    assert 0.35 < np.mean(signs) < 0.65
    assert all(magnitude >= 0 for name, magnitude in drawn if name in ("posterize", "solarize"))
    wide = torchvision_magnitudes(31, (60, 80), is_wide=True)
    found = [draws(TRIVIAL, (n, 1)) for n in range(300)]
    assert {len(of_sample) for of_sample in found} == {1}
    for ((name, magnitude),) in found:
        assert np.min(np.abs(np.abs(wide[name]) - abs(magnitude))) < 1e-4, name
    turns = [abs(magnitude) for ((name, magnitude),) in found if name == "rotate"]
    assert max(turns) > 90


def test_masks_and_points_move_and_have_no_colours() -> None:
    shape = tf.constant([60, 80, 3])
    transform = RandAugment(field="x", operations=3, magnitude=4, bins=11)
    mask = np.zeros((60, 80, 1), np.int32)
    mask[28:33, 38:42] = 7
    for number in range(20):
        drawn = transform.draw_shape(shape, tf.constant([number, 2], tf.int64))
        moved = transform.apply_pixels(tf.constant(mask), drawn, nearest=True, fill=255.0).numpy()
        assert set(np.unique(moved)) <= {0, 7, 255}
        rows, columns = np.nonzero(moved[..., 0] == 7)
        if len(rows) < 10:
            continue
        middle = transform.apply_points(tf.constant([[40.0, 30.5]]), drawn, shape)[0]
        np.testing.assert_allclose((columns.mean() + 0.5, rows.mean() + 0.5), middle, atol=1.5)


def test_a_magnitude_out_of_range_is_refused() -> None:
    with pytest.raises(ValidationError, match="magnitude: 31 should be below bins, 31"):
        RandAugment(field="x", magnitude=31)
