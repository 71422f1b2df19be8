"""Targets that contradict what the source knows of its boxes and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.harness.pictures import encode

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


def plan(targets: Any, *transforms: Any, exif: Any = "", **arrays: Any) -> None:
    definition = parse(
        {
            "source": {"arrays": ARRAYS | arrays},
            "transforms": transforms,
            "targets": targets,
            "batch": 2,
        }
    )
    source = open_source(definition.source)
    source.shown = {target.field: target for target in SHOWN}
    source.exif = exif
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


def test_padded_boxes_take_their_number_along_under_another_name() -> None:
    counts = {"boxes_count": np.ones(2, np.int64)}
    targets = {"bb": {"boxes": {"pad": 1}}, "mask": "mask"}
    names = {"boxes": "bb"}
    with pytest.raises(ConfigError, match="needs 'boxes_count', the number of its rows, as 'bb_c"):
        plan(targets, {"rename": {"fields": names}}, FLIP, **counts)
    drop = {"drop": {"fields": ["boxes_count"]}}
    with pytest.raises(ConfigError, match="do not drop it"):
        plan({"boxes": {"boxes": {"pad": 1}}, "mask": "mask"}, drop, FLIP, **counts)
    plan(targets, {"rename": {"fields": names | {"boxes_count": "bb_count"}}}, FLIP, **counts)


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


FILES = np.array([encode("PNG", np.zeros((20, 40), np.uint8))] * 2)
SQUARE = {"resize": {"field": "image", "size": [8, 8]}}
TARGETS = {"boxes": {"boxes": {"pad": 1}}, "mask": "mask"}


@pytest.mark.parametrize(
    ("exif", "written", "problem"),
    [
        ("apply", {}, "'boxes' fits the photos as EXIF turns them, by .*; write exif: apply"),
        ("ignore", {"exif": "apply"}, "fits the photos as they are stored, .* exif: ignore"),
        ("unclear", {}, "may fit the photos as EXIF turns them, .*: the labels do not tell"),
    ],
)
def test_another_exif_than_the_labels_need_is_refused(
    exif: str, written: Any, problem: str
) -> None:
    decode = {"decode_image": {"field": "image", **written}}
    mask = {"decode_image": {"field": "mask", "channels": 1}}
    with pytest.raises(ConfigError, match=r"transforms\[0\].decode_image: .*" + problem):
        plan(TARGETS, decode, mask, SQUARE, exif=exif, image=FILES, mask=FILES)
    right = {"decode_image": {"field": "image", "exif": "apply" if exif == "apply" else "ignore"}}
    plan(TARGETS, right, mask, SQUARE, exif=exif, image=FILES, mask=FILES)
    plan({}, decode, SQUARE, {"drop": {"fields": ["boxes", "mask"]}}, exif=exif, image=FILES)


def test_a_mask_moves_with_its_picture_when_it_is_decoded() -> None:
    mask = {"decode_image": {"field": "mask", "channels": 1}}
    with pytest.raises(
        ConfigError, match=r"flip_left_right: boxes, mask of 'image' would not move"
    ):
        plan({}, mask, FLIP, mask=FILES)
