"""Masks, boxes and key points beside each transform that moves a picture, and twins in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.transforms import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomFlipLeftRight,
    RandomFlipUpDown,
    RandomResizedCrop,
    Resize,
)
from infeed_server.transforms.instances import Boxes, Keypoints
from infeed_server.transforms.movement import Geometry
from infeed_server.transforms.target import Mask, Moved, Target

HEIGHT, WIDTH = 40, 50
NUMBERS = np.random.default_rng(5)
MASK = NUMBERS.integers(0, 9, (HEIGHT, WIDTH)).astype(np.uint8)
BEGINS = NUMBERS.uniform(0, 35, (30, 2)).astype(np.float32)
BOXES = np.concatenate([BEGINS, BEGINS + NUMBERS.uniform(1, 15, (30, 2)).astype(np.float32)], 1)
POINTS = NUMBERS.uniform(0, 40, (30, 3)).astype(np.float32)
LABELS = np.arange(30)

TRANSFORMS: dict[str, Geometry] = {
    "center_crop": CenterCrop(field="image", size=(21, 30)),
    "random_crop": RandomCrop(field="image", size=(21, 30)),
    "random_resized_crop": RandomResizedCrop(field="image", size=(32, 24)),
    "flip_left_right": RandomFlipLeftRight(field="image"),
    "flip_up_down": RandomFlipUpDown(field="image"),
    "resize": Resize(field="image", size=(16, 64)),
    "resize_short_side": Resize(field="image", short_side=20, method="bicubic", antialias=True),
    "pad": Pad(field="image", size=(47, 64), value=255),
}
TARGETS: dict[str, Target] = {
    "mask": Mask(fill=9),
    "boxes": Boxes(**{"with": ["label"]}),
    "keypoints": Keypoints(outside="mark"),
}


def moved_by(step: Geometry, key: int = 3) -> Moved:
    before = tf.constant([HEIGHT, WIDTH])
    drawn = step.draw_shape(tf.constant([HEIGHT, WIDTH, 3]), tf.constant([key, 1], tf.int64))
    return Moved(step, drawn, before, tf.cast(step.result_size(before, drawn), tf.int32))


def move(target: Target, sample: dict[str, Any], moved: Moved, name: str = "t") -> dict[str, Any]:
    fields = {field: tf.constant(value) for field, value in sample.items()}
    result = target.finish(target.move(fields, name, moved), name)
    return {field: value.numpy() for field, value in result.items()}


def factors(step: Geometry, moved: Moved) -> tuple[Any, Any]:
    """Returns scale and offset of x and of y: what a reader of the documents computes by hand."""
    drawn = {name: value.numpy() for name, value in moved.drawn.items()}
    if "flipped" in drawn:
        axis = isinstance(step, RandomFlipUpDown)
        scale = np.where(np.arange(2) == axis, 1.0 - 2 * drawn["flipped"], 1.0)
        return scale, np.where(scale < 0, [WIDTH, HEIGHT], 0.0)
    if isinstance(step, Pad):
        return np.ones(2), np.array([(64 - WIDTH) // 2, (47 - HEIGHT) // 2])
    if isinstance(step, Resize):
        height, width = step.size or (20, 25)
        return np.array([width / WIDTH, height / HEIGHT]), np.zeros(2)
    scale = np.array([step.size[1] / drawn["width"], step.size[0] / drawn["height"]])  # type: ignore[attr-defined]
    return scale, -scale * [drawn["x"], drawn["y"]]


@pytest.mark.parametrize("key", [3, 4])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_target_moves_as_its_twin(name: str, target: str, key: int) -> None:
    step = TRANSFORMS[name]
    moved = moved_by(step, key)
    scale, offset = factors(step, moved)
    height, width = moved.after.numpy()
    if target == "mask":
        got = move(TARGETS[target], {"t": MASK}, moved)["t"]
        x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
        columns = np.floor((x - offset[0]) / scale[0] + 1e-6).astype(int)
        rows = np.floor((y - offset[1]) / scale[1] + 1e-6).astype(int)
        inside = (columns >= 0) & (columns < WIDTH) & (rows >= 0) & (rows < HEIGHT)
        twin = np.where(inside, MASK[rows % HEIGHT, columns % WIDTH], 9)
        np.testing.assert_array_equal(got, twin)
    elif target == "boxes":
        result = move(TARGETS[target], {"t": BOXES, "label": LABELS}, moved)
        corners = np.stack([BOXES[:, :2] * scale + offset, BOXES[:, 2:] * scale + offset])
        begin, end = (
            np.clip(corner, 0, [width, height]) for corner in (corners.min(0), corners.max(0))
        )
        stays = np.prod(end - begin, 1) > 0
        twin = np.concatenate([begin, end], 1)[stays]
        np.testing.assert_allclose(result["t"], twin, atol=1e-4)
        np.testing.assert_array_equal(result["label"], LABELS[stays])
    else:
        got = move(TARGETS[target], {"t": POINTS}, moved)["t"]
        xy = POINTS[:, :2] * scale + offset
        seen = ((xy >= 0) & (xy <= [width, height])).all(1, keepdims=True)
        twin = np.where(seen, np.concatenate([xy, POINTS[:, 2:]], 1), 0)
        np.testing.assert_allclose(got, twin, atol=1e-4)


CROP = CenterCrop(field="image", size=(20, 20))
"""Takes the pixels from 10 to 30, and 15 to 35."""


@pytest.mark.parametrize(
    ("options", "box", "expected"),
    [
        ({}, [15, 10, 35, 30], [[0, 0, 20, 20]]),
        ({}, [0, 0, 25, 20], [[0, 0, 10, 10]]),
        ({}, [0, 0, 15, 10], []),
        ({}, [20, 20, 20, 25], []),
        ({"normalized": True}, [0.4, 0.5, 0.4, 0.7], []),
        ({"outside": "keep"}, [0, 0, 25, 20], [[-15, -10, 10, 10]]),
        ({"outside": "keep"}, [0, 0, 1, 1], [[-15, -10, -14, -9]]),
        ({"min_visible": 0.5}, [10, 10, 20, 20], [[0, 0, 5, 10]]),
        ({"min_visible": 0.51}, [10, 10, 20, 20], []),
        ({"min_visible": 0.51, "outside": "keep"}, [10, 10, 20, 20], []),
        ({"min_visible": 1.0}, [16, 11, 20, 20], [[1, 1, 5, 10]]),
        ({"format": "xywh"}, [10, 10, 10, 10], [[0, 0, 5, 10]]),
        ({"format": "cxcywh"}, [15, 15, 10, 10], [[2.5, 5, 5, 10]]),
        ({"normalized": True}, [0.4, 0.5, 0.5, 0.625], [[0.25, 0.5, 0.5, 0.75]]),
    ],
)
def test_a_box_is_cut_dropped_or_kept(options: Any, box: Any, expected: Any) -> None:
    moved = moved_by(CROP)
    result = move(Boxes(**options), {"t": np.array([box], np.float32)}, moved)["t"]
    np.testing.assert_allclose(result, np.reshape(expected, (-1, 4)), atol=1e-5)


def test_rows_that_drop_leave_every_field_and_are_padded() -> None:
    target = Boxes(**{"with": ["label", "name"], "pad": 3})
    boxes = np.array([[0, 0, 5, 5], [15, 10, 20, 20], [40, 30, 50, 40], [20, 20, 30, 30]])
    sample = {"t": boxes, "label": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]}
    result = move(target, sample, moved_by(CROP))
    assert result["t_count"] == 2
    assert result["t"].tolist() == [[0, 0, 5, 10], [5, 10, 15, 20], [0, 0, 0, 0]]
    assert result["label"].tolist() == [2, 4, 0]
    assert result["name"].tolist() == [b"b", b"d", b""]


def test_more_rows_than_pad_are_refused_or_cut() -> None:
    sample, moved = {"t": BOXES}, moved_by(TRANSFORMS["resize"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 4 rows, or surplus: cut"):
        move(Boxes(pad=4), sample, moved)
    result = move(Boxes(pad=4, surplus="cut"), sample, moved)
    assert (result["t"].shape, result["t_count"]) == ((4, 4), 4)


def test_no_box_is_no_row() -> None:
    sample = {"t": np.zeros((0, 4), np.float32), "label": np.zeros(0, np.int64)}
    result = move(Boxes(**{"with": ["label"], "pad": 2}), sample, moved_by(CROP))
    assert (result["t"].any(), result["label"].tolist(), result["t_count"]) == (False, [0, 0], 0)


def test_a_mirrored_picture_swaps_left_and_right_points() -> None:
    points = np.array([[[1, 2, 2], [3, 4, 1], [0, 0, 0], [40, 30, 2]]], np.float32)
    target = Keypoints(pairs=[(0, 1), (2, 3)])
    step = TRANSFORMS["flip_left_right"]
    by_flip = {bool(moved_by(step, key).drawn["flipped"]): moved_by(step, key) for key in range(9)}
    assert move(target, {"t": points}, by_flip[False])["t"].tolist() == points.tolist()
    swapped = [[[47, 4, 1], [49, 2, 2], [10, 30, 2], [0, 0, 0]]]
    assert move(target, {"t": points}, by_flip[True])["t"].tolist() == swapped


def test_points_without_visibility_are_kept_outside() -> None:
    points = np.array([[0, 0], [0.5, 0.5]], np.float32)
    result = move(Keypoints(normalized=True, pad=3), {"t": points}, moved_by(CROP))
    assert result["t"].tolist() == [[-0.75, -0.5], [0.5, 0.5], [0, 0]]
    assert result["t_count"] == 2


def test_a_mask_keeps_its_channels_and_type() -> None:
    mask = np.stack([MASK, MASK + 1], -1).astype(np.int32)
    moved = moved_by(TRANSFORMS["resize"])
    result = move(Mask(), {"t": mask}, moved)["t"]
    assert (result.shape, result.dtype) == ((16, 64, 2), np.int32)
    assert (result[..., 1] - result[..., 0] == 1).all()


@pytest.mark.parametrize(
    ("target", "sample", "problem"),
    [
        (
            Mask(),
            {"t": b"png"},
            "the mask is encoded where 'image' moves; put decode_image",
        ),
        (Mask(), {"t": [1]}, r"targets.t: the field holds int32\[1\], not \[height, width\] or"),
        (
            Mask(fill=300),
            {"t": np.zeros((4, 4), np.uint8)},
            "targets.t.mask.fill: 300 is not a uint8, the mask",
        ),
        (
            Mask(fill=2**32 - 1),
            {"t": np.zeros((4, 4), np.uint32)},
            "targets.t.mask.fill: 4294967295 is above 16777216",
        ),
        (Boxes(), {"t": [[1.0]]}, r"targets.t: the field holds float32\[1, 1\], not \[n, 4\]"),
        (Boxes(), {"t": b"png"}, r"targets.t: the field holds bytes\[\], not \[n, 4\]"),
        (Boxes(**{"with": ["x"]}), {"t": BOXES}, "targets.t: with: no rows in 'x'; fields: "),
        (Boxes(pad=2), {"t": BOXES, "t_count": 1.5}, r"'t_count' holds float32\[\], not the nu"),
        (Keypoints(), {"t": [1.0]}, r"holds float32\[1\], not \[..., 2\] or \[..., 3\]"),
        (Keypoints(outside="mark"), {"t": [[1.0, 2]]}, "needs a third number, the visibility"),
        (
            Keypoints(pairs=[(0, 2)]),
            {"t": [[1.0, 2]]},
            "pairs: a number is not below the 1 points",
        ),
    ],
)
def test_a_field_that_is_no_target_is_refused(target: Target, sample: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        move(target, sample, moved_by(TRANSFORMS["flip_left_right"]))


def test_parts_that_do_not_fit_are_bad_samples() -> None:
    moved = moved_by(CROP)
    with pytest.raises(tf.errors.InvalidArgumentError, match="of the mask and of image differ"):
        move(Mask(), {"t": MASK[1:]}, moved)
    with pytest.raises(tf.errors.InvalidArgumentError, match="t, label must have the same number"):
        move(Boxes(**{"with": ["label"]}), {"t": BOXES, "label": [1]}, moved)


STILL = Moved(None, {}, tf.constant([HEIGHT, WIDTH]), tf.constant([HEIGHT, WIDTH]))


@pytest.mark.parametrize("moved", [moved_by(CROP), STILL, Moved(None, {}, None, None)])
@pytest.mark.parametrize("wrong", [[0, 0, np.nan, 5], [0, -np.inf, 5, 5], [9, 9, 4, 12]])
def test_what_is_no_box_is_a_bad_sample(moved: Moved, wrong: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite, or its end before"):
        move(Boxes(), {"t": np.array([[1, 1, 2, 2], wrong], np.float32)}, moved)


def test_targets_of_a_still_picture_are_cut_where_it_is_decoded() -> None:
    sample = {"t": [[-5, 2, 10, 99], [60, 1, 70, 2], [3, 3, 3, 9]]}
    cut = move(Boxes(), sample, STILL)["t"]
    assert (cut.dtype, cut.tolist()) == (np.float32, [[0, 2, 10, HEIGHT]])
    whole = move(Boxes(), sample, Moved(None, {}, None, None))["t"]
    assert (whole.dtype, whole.tolist()) == (np.float32, sample["t"])
    points = {"t": [[60.0, 2.0, 2.0], [5.0, 5.0, 1.0]]}
    assert move(Keypoints(outside="mark"), points, STILL)["t"].tolist() == [[0, 0, 0], [5, 5, 1]]
    assert move(Mask(), {"t": b"png"}, STILL)["t"] == b"png"
