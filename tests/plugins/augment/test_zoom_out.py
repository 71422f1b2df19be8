"""Zoom out: torchvision's picture for the same draws, what is drawn, and the targets that move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError
from tests.plugins.augment.test_warp import picture

from infeed_augment.zoom_out import RandomZoomOut
from infeed_server.pipeline.moved_targets import MoveTargets
from infeed_server.transforms.instances import Boxes
from infeed_server.transforms.target import Mask

KEYS = [tf.constant([number, 4], tf.int64) for number in range(60)]


def torchvision_zoom_out(pixels: Any, numbers: Any, fill: int) -> Any:
    """Returns what torchvision's `RandomZoomOut` makes of its three draws."""
    height, width = pixels.shape[:2]
    r = 1 + numbers[0] * (4 - 1)
    canvas_width, canvas_height = int(width * r), int(height * r)
    left = int((canvas_width - width) * numbers[1])
    top = int((canvas_height - height) * numbers[2])
    right, bottom = canvas_width - (left + width), canvas_height - (top + height)
    return np.pad(pixels, ((top, bottom), (left, right), (0, 0)), constant_values=fill)


def test_a_picture_is_torchvisions() -> None:
    transform, changed = RandomZoomOut(field="x", fill=7).numbered(0), 0
    for key in KEYS:
        chance, *numbers = tf.random.stateless_uniform([4], key).numpy()
        expected = picture() if chance >= 0.5 else torchvision_zoom_out(picture(), numbers, 7)
        result = transform.apply({"x": tf.constant(picture())}, key)["x"].numpy()
        assert result.dtype == np.uint8
        np.testing.assert_array_equal(result, expected)
        changed += chance < 0.5
    assert 15 < changed < 45


def test_targets_move_into_the_larger_picture() -> None:
    transform = RandomZoomOut(field="image", probability=1.0).numbered(0)
    mask = np.zeros((60, 80), np.uint8)
    mask[20:30, 10:50] = 3
    targets = {"mask": Mask(fill=255), "boxes": Boxes(normalized=True)}
    move = MoveTargets(step=transform, targets=targets, is_last=False)
    fields = {"image": picture(), "mask": mask, "targets/image": np.array([60, 80], np.int32)}
    fields["boxes"] = np.array([[10 / 80, 20 / 60, 50 / 80, 30 / 60]], np.float32)
    for key in KEYS[:5]:
        found = move.apply({name: tf.constant(value) for name, value in fields.items()}, key)
        height, width = found["mask"].shape
        assert (found["targets/image"].numpy() == [height, width]).all()
        assert transform.apply(found, key)["image"].shape == (height, width, 3)
        rows, columns = np.nonzero(found["mask"].numpy() == 3)
        corners = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        expected = np.array([corners]) / [width, height, width, height]
        np.testing.assert_allclose(found["boxes"], expected, atol=1e-6)
        assert (found["mask"].numpy() == 255).sum() == height * width - 60 * 80


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"scale: should be .* with 1 <= min <= max"):
        RandomZoomOut(field="x", scale=[0.5, 2])
    huge = tf.zeros([1, 1, 1], tf.uint8)
    drawn = {"height": 1 << 16, "width": 1 << 16, "y": 0, "x": 0}
    with pytest.raises(tf.errors.InvalidArgumentError, match="would have more than"):
        RandomZoomOut(field="x").apply_pixels(huge, drawn)
