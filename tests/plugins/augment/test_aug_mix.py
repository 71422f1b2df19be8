"""AugMix: the blend of chains by Pillow, torchvision's magnitudes, what is drawn how often, and the
targets that cannot move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tests.plugins.augment.test_policies import BLENDS, by_pillow
from tests.plugins.augment.test_warp import picture

from infeed import ConfigError
from infeed_augment.aug_mix import AugMix
from infeed_server.transforms.instances import Boxes
from infeed_server.transforms.target import Mask, Moved

LEVELS = np.arange(10) / 9
MAGNITUDES = {
    **dict.fromkeys(("shear_x", "shear_y"), 0.3 * LEVELS),
    "translate_x": (80 / 3 * LEVELS).astype(int),
    "translate_y": (60 / 3 * LEVELS).astype(int),
    "rotate": 30 * LEVELS,
    **dict.fromkeys(BLENDS, 0.9 * LEVELS),
    "posterize": 4 - np.round(4 * LEVELS),
    "solarize": np.ceil(255 - 255 * LEVELS - 1e-3),
    **dict.fromkeys(("autocontrast", "equalize"), np.zeros(10)),
}
"""torchvision's, without signs."""


def draws(transform: AugMix, key: Any) -> dict[str, Any]:
    drawn = transform.draw({"x": tf.constant(picture())}, tf.constant(key, tf.int64))
    return {name: value.numpy() for name, value in drawn.items()}


def chains(transform: AugMix, drawn: dict[str, Any]) -> list[list[tuple[str, float]]]:
    depth = transform.depth or 3
    rows = [range(chain * depth, (chain + 1) * depth) for chain in range(transform.width)]
    found = [
        [(drawn[f"operation{n}"].decode(), drawn[f"magnitude{n}"]) for n in row] for row in rows
    ]
    return [[step for step in row if step[0] != "identity"] for row in found]


def test_chains_are_blended_by_their_shares(run_each: Any) -> None:
    transform = AugMix(field="x", interpolation="nearest", severity=8, width=2)
    keys = [(number, 3) for number in range(30)]
    results = run_each(transform, {"x": np.stack([picture()] * len(keys))}, keys)
    for key, result in zip(keys, results, strict=True):
        drawn, own, is_exact = draws(transform, key), picture(), True
        expected = drawn["share"] * own.astype(np.float64)
        for number, chain in enumerate(chains(transform, drawn)):
            image = Image.fromarray(own)
            for name, magnitude in chain:
                image = by_pillow(image, name, magnitude)
                is_exact &= name not in ("shear_x", "shear_y", "rotate")
            expected += drawn[f"share{number}"] * np.asarray(image)
        share = (result["x"] == np.floor(expected)).all(axis=2).mean()
        assert share == 1 if is_exact else share > 0.75, key


def test_draws_are_torchvisions() -> None:
    transform = AugMix(field="x")
    found = [draws(transform, (number, 1)) for number in range(300)]
    own = np.array([drawn["share"] for drawn in found])
    of_chains = np.array([[drawn[f"share{n}"] for n in range(3)] for drawn in found])
    assert (own + of_chains.sum(1) == 1).all()
    assert abs(own.mean() - 1 / 2) < 0.05
    assert abs(own.var() - 1 / 12) < 0.02  # Beta(1, 1)
    relative = of_chains / (1 - own)[:, np.newaxis]
    assert np.abs(relative.mean(0) - 1 / 3).max() < 0.05
    assert np.abs(relative.var(0) - 1 / 18).max() < 0.02  # Dirichlet(1, 1, 1)
    made = [chain for drawn in found for chain in chains(transform, drawn)]
    counts = np.bincount([len(chain) for chain in made], minlength=4)
    assert np.abs(counts - [0, 300, 300, 300]).max() < 60
    steps = [step for chain in made for step in chain]
    for name, magnitude in steps:
        assert np.abs(np.abs(MAGNITUDES[name][:3]) - abs(magnitude)).min() < 1e-4, name
    for name in MAGNITUDES:
        assert abs(sum(name == other for other, _ in steps) - 1800 / 13) < 50, name
    signs = [magnitude > 0 for name, magnitude in steps if name in BLENDS and magnitude]
    assert 0.4 < np.mean(signs) < 0.6


def test_chains_have_a_depth_and_can_leave_blends_out() -> None:
    transform = AugMix(field="x", width=1, depth=4, all_operations=False)
    made = [chain for n in range(60) for chain in chains(transform, draws(transform, (n, 1)))]
    assert {len(chain) for chain in made} == {4}
    assert {name for chain in made for name, _ in chain} == set(MAGNITUDES) - set(BLENDS)


@pytest.mark.parametrize("target", [Mask(of="x"), Boxes(of="x")], ids=lambda t: type(t).__name__)
def test_a_target_is_refused(target: Any) -> None:
    transform, size = AugMix(field="x").numbered(0), tf.constant([60, 80])
    drawn = transform.draw_shape(size, tf.constant([1, 2], tf.int64))
    sample = {"t": tf.zeros([60, 80], tf.uint8) if isinstance(target, Mask) else tf.zeros([1, 4])}
    with pytest.raises(ConfigError, match="targets of 'x' cannot move along; use rand_augment"):
        target.move(sample, "t", Moved(transform, drawn, size, size))
