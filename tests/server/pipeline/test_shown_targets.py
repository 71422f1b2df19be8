"""Targets that contradict what the source knows of its boxes and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from infeed import ConfigError
from infeed.shared.spec import TargetSpec
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import open_source

ARRAYS: dict[str, Any] = {
    "image": np.zeros((2, 20, 40, 3), np.uint8),
    "mask": np.zeros((2, 20, 40, 1), np.uint8),
    "boxes": np.zeros((2, 1, 4), np.float32),
}
SHOWN = (
    TargetSpec("mask", "image", "mask"),
    TargetSpec("boxes", "image", "boxes", format="xyxy"),
)
FLIP = {"random_flip_left_right": {"field": "image"}}
RESIZE = {"resize": {"field": "mask", "size": [10, 10]}}


def plan(targets: Any, *transforms: Any) -> None:
    definition = parse(
        {
            "source": {"arrays": ARRAYS},
            "transforms": transforms,
            "targets": targets,
            "batch": 2,
        }
    )
    source = open_source(definition.source)
    source.shown = {target.field: target for target in SHOWN}
    plan_indexed("p", definition, source)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"normalized": True, "pad": 2}, r"{format: xyxy, normalized: true} contra"),
        ({"format": "xywh", "pad": 2}, r"{format: xywh} contradicts the source, whose"),
    ],
)
def test_other_boxes_than_the_source_has_are_refused(written: Any, problem: str) -> None:
    rename = {"rename": {"fields": {"boxes": "box"}}}
    with pytest.raises(ConfigError, match="targets.box: .*" + problem):
        plan({"box": {"boxes": written}, "mask": "mask"}, rename, FLIP)
    for later in (rename, {"drop": {"fields": ["image"]}}):  # what is sent does not decide
        with pytest.raises(ConfigError, match="targets.boxes: .*" + problem):
            plan({"boxes": {"boxes": written}, "mask": "mask"}, FLIP, later)


def test_the_boxes_of_the_source_are_taken() -> None:
    plan({"boxes": {"boxes": {"pad": 2}}, "mask": "mask"}, FLIP)


def test_what_the_source_shows_moves_or_is_dropped() -> None:
    resize = {"resize": RESIZE["resize"] | {"field": "image"}}
    problem = (
        r"transforms\[0\].resize: boxes of 'image' would not move with it; write targets: "
        r"\{boxes: \{boxes: \{pad: 1\}\}\}, or drop"
    )
    with pytest.raises(ConfigError, match=problem):
        plan({}, resize)
    plan({}, resize, {"drop": {"fields": ["boxes"]}})


def test_what_is_left_is_written_beside_what_moves() -> None:
    boxes = {"boxes": {"boxes": {"min_visible": 0.5, "pad": 3}}}
    with pytest.raises(ConfigError, match=r"mask of .* min_visible: 0.5}}, mask: mask}"):
        plan(boxes, FLIP)
    with pytest.raises(ConfigError, match=r"boxes of .* {mask: mask, boxes: {boxes: {pad: 1}}}"):
        plan({"mask": "mask"}, FLIP)


def test_another_name_of_the_picture_leaves_nothing_behind() -> None:
    rename = {"rename": {"fields": {"image": "pic"}}}
    flip = {"random_flip_left_right": {"field": "pic"}}
    with pytest.raises(ConfigError, match=r" of 'pic' would not .* {boxes: {of: pic, pad: 1}}"):
        plan({}, rename, flip)
    boxes, mask = {"of": "pic", "pad": 1}, {"of": "pic"}
    plan({"boxes": {"boxes": boxes}, "mask": {"mask": mask}}, rename, flip)


def test_a_mask_that_is_moved_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'mask' is a mask, .* write targets: {mask: mask}"):
        plan({}, RESIZE)
    plan({}, {"resize": RESIZE["resize"] | {"method": "nearest"}})
