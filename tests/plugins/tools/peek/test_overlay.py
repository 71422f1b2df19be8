"""Masks, boxes and key points drawn over a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from infeed.shared.spec import TargetSpec
from infeed_tools.peek.overlay import draw_target

RED, GREEN = [230, 25, 75], [60, 220, 75]


def drawn(target: TargetSpec, scale: int = 1, names: Any = (), grey: int = 0, **fields: Any) -> Any:
    """Returns the pixels of a grey 12 x 16 picture with a target."""
    picture = Image.fromarray(np.full((12 * scale, 16 * scale), grey, np.uint8))
    batch: Any = {name: np.array([value]) for name, value in fields.items()}
    return np.asarray(draw_target(picture, target, batch, 0, scale, names).convert("RGB"))


def test_a_mask_has_a_colour_for_each_class() -> None:
    mask = np.zeros((12, 16, 1), np.uint8)
    mask[2, 3], mask[4, 5] = 1, 2
    pixels = drawn(TargetSpec("mask", "image", "mask"), 2, mask=mask)
    assert (pixels[4:6, 6:8] == np.array(RED) // 2).all()
    assert (pixels[8:10, 10:12] == np.array(GREEN) // 2).all()
    assert not pixels[:4].any()


@pytest.mark.parametrize(
    ("format_", "normalized", "box"),
    [
        ("xyxy", False, [4, 3, 12, 9]),
        ("xywh", False, [4, 3, 8, 6]),
        ("cxcywh", False, [8, 6, 8, 6]),
        ("xyxy", True, [0.25, 0.25, 0.75, 0.75]),
    ],
)
def test_a_box_is_outlined(format_: str, normalized: bool, box: Any) -> None:
    target = TargetSpec("boxes", "image", "boxes", format_, normalized)
    rows = {"boxes": [box, [0, 0, 16, 12]], "label": [1, 0], "boxes_count": 1}
    pixels = drawn(target, 2, **rows)
    assert (pixels[6, 8:24] == GREEN).all()
    assert (pixels[17, 8:24] == GREEN).all()
    assert not pixels[10:14, 10:22].any()
    assert not pixels[:6].any()


def test_a_box_has_the_name_of_its_class() -> None:
    rows = {"boxes": [[0, 0, 16, 12]], "label": [1]}
    target = TargetSpec("boxes", "image", "boxes", "xyxy")
    inside = (slice(12, 34), slice(12, 60))
    assert not drawn(target, 4, **rows)[inside].any()
    assert drawn(target, 4, ("cat", "dog"), **rows)[inside].any()
    on_white = drawn(target, 4, ("cat", "dog"), 255, **rows)[inside]
    assert (on_white == 0).all(-1).any()


def test_points_that_are_seen_are_dots() -> None:
    points = [[[8, 6, 2], [1, 1, 0]]]
    pixels = drawn(TargetSpec("points", "image", "keypoints"), points=points)
    assert pixels[6, 8].tolist() == [255, 255, 0]
    assert not pixels[:3, :3].any()
