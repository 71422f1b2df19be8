"""Rotation, affine and perspective: Pillow's pixels under torchvision's matrices; masks and points
that move with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from pydantic import ValidationError

from infeed_augment.affine import RandomAffine, RandomRotation
from infeed_augment.perspective import RandomPerspective
from infeed_server.transforms.instances import Boxes, Keypoints
from infeed_server.transforms.target import Moved

KEYS = [(number, 7) for number in range(6)]
SHAPE = (60, 80, 3)
ROTATION = RandomRotation(field="x", degrees=50, fill=9)
AFFINE = RandomAffine(
    field="x", degrees=[-10, 40], translate=[0.2, 0.1], scale=[0.7, 1.4], shear_x=20, shear_y=[5, 9]
)
PERSPECTIVE = RandomPerspective(field="x", distortion=0.6, probability=1.0, interpolation="nearest")
ALL = [ROTATION, AFFINE, PERSPECTIVE]


def picture() -> Any:
    small = np.random.default_rng(3).integers(0, 256, (6, 8, 3), np.uint8)
    return np.asarray(Image.fromarray(small).resize((80, 60), Image.Resampling.BICUBIC))


def draws(transform: Any, key: Any) -> dict[str, Any]:
    drawn = transform.draw({"x": tf.zeros(SHAPE, tf.uint8)}, tf.constant(key, tf.int64))
    return {name: value.numpy() for name, value in drawn.items()}


def torchvision_affine(drawn: dict[str, Any]) -> list[float]:
    """Returns the inverse matrix of torchvision's `affine`, about the picture's centre."""
    rot, sx, sy = (math.radians(drawn[name]) for name in ("angle", "shear_x", "shear_y"))
    a = math.cos(rot - sy) / math.cos(sy)
    b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
    c = math.sin(rot - sy) / math.cos(sy)
    d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
    m = [value / drawn["scale"] for value in (d, -b, 0, -c, a, 0)]
    x, y = SHAPE[1] / 2 + drawn["x"], SHAPE[0] / 2 + drawn["y"]
    m[2] = SHAPE[1] / 2 - m[0] * x - m[1] * y
    m[5] = SHAPE[0] / 2 - m[3] * x - m[4] * y
    return m


def torchvision_perspective(drawn: dict[str, Any]) -> Any:
    """Returns the eight coefficients from the drawn corners to the picture's."""
    rows, values = [], []
    for n, (u, v) in enumerate(((0, 0), (80, 0), (80, 60), (0, 60))):
        x, y = drawn[f"corner{n}.x"] * 80.0, drawn[f"corner{n}.y"] * 60.0
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0]


def by_pillow(transform: Any, drawn: dict[str, Any], resample: Any) -> Any:
    image, size = Image.fromarray(picture()), (80, 60)
    fill = (transform.fill,) * 3
    if transform is ROTATION:
        return image.rotate(float(drawn["angle"]), resample, fillcolor=fill)
    if transform is AFFINE:
        matrix: Any = torchvision_affine(drawn)
        return image.transform(size, Image.Transform.AFFINE, matrix, resample, fillcolor=fill)
    matrix = torchvision_perspective(drawn)
    return image.transform(size, Image.Transform.PERSPECTIVE, matrix, resample, fillcolor=fill)


@pytest.mark.parametrize("transform", ALL, ids=lambda transform: transform.name)
def test_pixels_are_pillows(run_each: Any, transform: Any) -> None:
    results = run_each(transform, {"x": np.stack([picture()] * len(KEYS))}, KEYS)
    for key, result in zip(KEYS, results, strict=True):
        expected = by_pillow(transform, draws(transform, key), Image.Resampling.NEAREST)
        # Coordinates are rounded in float32 there, and in 65536ths of pixels by Pillow.
        assert (result["x"] == np.asarray(expected)).all(axis=2).mean() > 0.985
    assert len({result["x"].tobytes() for result in results}) == len(KEYS)


def test_bilinear_pixels_are_rounded(run_each: Any) -> None:
    smooth = ROTATION.model_copy(update={"interpolation": "bilinear"})
    results = run_each(smooth, {"x": np.stack([picture()] * len(KEYS))}, KEYS)
    for key, result in zip(KEYS, results, strict=True):
        drawn = draws(smooth, key)
        image = Image.fromarray(picture())
        expected = np.asarray(image.rotate(float(drawn["angle"]), Image.Resampling.BILINEAR))
        difference = np.abs(result["x"].astype(int) - expected)[expected.min(axis=2) > 0]
        assert np.mean(difference <= 1) > 0.97


@pytest.mark.parametrize("transform", ALL, ids=lambda transform: transform.name)
def test_masks_and_points_move_with_the_picture(transform: Any) -> None:
    shape = tf.constant(SHAPE)
    mask = np.zeros((60, 80, 1), np.int16)
    mask[30:35, 40:44] = 7
    for key in KEYS:
        drawn = transform.draw_shape(shape, tf.constant(key, tf.int64))
        moved = transform.apply_pixels(tf.constant(mask), drawn, nearest=True, fill=255.0).numpy()
        assert set(np.unique(moved)) <= {0, 7, 255}
        assert moved.dtype == np.int16
        rows, columns = np.nonzero(moved[..., 0] == 7)
        middle = transform.apply_points(tf.constant([[42.0, 32.5]]), drawn, shape)[0]
        np.testing.assert_allclose((columns.mean() + 0.5, rows.mean() + 0.5), middle, atol=0.8)


def test_any_perspective_keeps_boxes_around_their_pixels() -> None:
    step, size = PERSPECTIVE.model_copy(update={"distortion": 1.0}), tf.constant(SHAPE[:2])
    boxes = np.float32([[4, 4, 24, 20], [60, 6, 78, 30], [50, 40, 76, 56], [-40, -40, 140, 120]])
    target = Boxes(outside="keep")
    for number in range(60):
        drawn = step.draw_shape(tf.constant(SHAPE), tf.constant([number, 7], tf.int64))
        moved = Moved(step, drawn, size, size)
        found = target.move({"t": tf.constant(boxes)}, "t", moved)["t"].numpy()
        for (left, top, right, bottom), box in zip(boxes[:3].astype(int), found[:3], strict=True):
            mask = np.zeros((60, 80, 1), np.uint8)
            mask[top:bottom, left:right] = 1
            y, x = np.nonzero(step.apply_pixels(tf.constant(mask), drawn, nearest=True)[..., 0])
            around = x.min(), y.min(), x.max() + 1, y.max() + 1
            np.testing.assert_allclose(box, around, atol=1.6, err_msg=str(number))
        assert (found[3, :2] < found[:3, :2].min(0)).all()
        assert (found[3, 2:] > found[:3, 2:].max(0)).all()
        pair = {"t": tf.constant([[4.0, 4.0], [70.0, 4.0]])}
        plain, swapped = (
            Keypoints(pairs=pairs).move(pair, "t", moved)["t"] for pairs in ((), [(0, 1)])
        )
        np.testing.assert_array_equal(plain, swapped)


def test_a_turned_line_is_dropped_as_a_flipped_one() -> None:
    drawn = ROTATION.draw_shape(tf.constant(SHAPE), tf.constant([1, 7], tf.int64))
    moved = Moved(ROTATION, drawn, tf.constant(SHAPE[:2]), tf.constant(SHAPE[:2]))
    line = {"t": tf.constant([[40.0, 20.0, 40.0, 40.0]])}
    assert Boxes().move(line, "t", moved)["t"].shape == (0, 4)


@pytest.mark.parametrize("kind", [np.uint64, np.uint32, np.int64, np.int16])
def test_large_numbers_of_a_mask_survive(kind: Any) -> None:
    largest = np.iinfo(kind).max
    drawn = ROTATION.draw_shape(tf.constant(SHAPE), tf.constant([1, 7], tf.int64))
    mask = tf.constant(np.full((60, 80, 1), largest, kind))
    found = ROTATION.apply_pixels(mask, drawn, nearest=True, fill=5.0)
    assert {*np.unique(found).tolist()} == {5, largest}


def test_draws_have_their_ranges() -> None:
    drawn = [draws(AFFINE, (number, 1)) for number in range(60)]
    for name, low, high in (
        ("angle", -10, 40),
        ("scale", 0.7, 1.4),
        ("x", -16, 16),
        ("y", -6, 6),
        ("shear_x", -20, 20),
        ("shear_y", 5, 9),
    ):
        values = [float(draw[name]) for draw in drawn]
        assert low - 1e-5 <= min(values) < low + 0.15 * (high - low)
        assert high - 0.15 * (high - low) < max(values) <= high + 1e-5
    sometimes = RandomPerspective(field="x", probability=0.25)
    moved = [bool(draws(sometimes, (number, 1))["moved"]) for number in range(100)]
    assert 0.1 < np.mean(moved) < 0.4


def test_wrong_ranges_are_refused() -> None:
    with pytest.raises(ValidationError, match="scale: should be"):
        RandomAffine(field="x", scale=(0.0, 1.0))
    with pytest.raises(ValidationError, match="shear_x: should be between -90 and 90"):
        RandomAffine(field="x", shear_x=90)
