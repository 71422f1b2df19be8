"""Random geometry of one of several fields: refused, unless it is meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.sources import open_source

PNG = tf.io.encode_png(np.zeros((8, 8, 3), np.uint8)).numpy()
ARRAYS: dict[str, Any] = {
    "image": np.zeros((4, 8, 8, 3), np.uint8),
    "mask": np.zeros((4, 8, 8), np.uint8),
    "depth": np.zeros((4, 4, 4, 1), np.float32),
    "other": np.zeros((4, 8, 8, 1), np.uint8),
    "png": np.array([PNG] * 4, object),
    "boxes": np.zeros((4, 20, 4), np.float32),
    "caption": np.zeros((4, 5, 64), np.int32),
    "label": np.zeros(4, np.int64),
}
FLIP: dict[str, Any] = {"random_flip_left_right": {"field": "image"}}
CROP: dict[str, Any] = {"random_crop": {"field": "image", "size": [6, 6]}}
RESIZE: dict[str, Any] = {"resize": {"field": "png", "size": [4, 4]}}
DECODE: dict[str, Any] = {"decode_image": {"field": "png"}}


def plan(fields: str, *transforms: Any) -> None:
    source = {"arrays": {name: ARRAYS[name] for name in fields.split()}}
    definition = parse({"source": source, "transforms": list(transforms), "batch": 2})
    plan_indexed("p", definition, open_source(definition.source))


@pytest.mark.parametrize(
    ("fields", "transforms", "other"),
    [
        ("image mask label", [FLIP], r"'mask', which is a picture too \(uint8\[8, 8\]\)"),
        (
            "image mask",
            [FLIP, {"map": lambda sample: sample}],
            "'mask', which is a picture too",
        ),
        ("image depth", [CROP], r"'depth', which is a picture too \(float32\[4, 4, 1\]\)"),
        ("image boxes", [FLIP], r"'boxes', whose rows may be boxes \(float32\[20, 4\]\)"),
        ("image png", [FLIP, DECODE, RESIZE], "'png', an image that is decoded later"),
        (
            "image png",
            [DECODE, FLIP, RESIZE],
            r"'png', which is a picture too \(uint8\[\?, \?, 3\]",
        ),
        (
            "image png",
            [
                {"rename": {"fields": {"png": "x"}}},
                FLIP,
                {"rename": {"fields": {"x": "png"}}},
                DECODE,
                RESIZE,
            ],
            "'x', an image that is decoded later",
        ),
    ],
)
def test_random_geometry_of_one_picture_is_refused(
    fields: str, transforms: list[Any], other: str
) -> None:
    place = next(n for n, step in enumerate(transforms) if step in (FLIP, CROP))
    (name,) = transforms[place]
    named = name.replace("random", "image")
    with pytest.raises(
        ConfigError,
        match=rf"^transforms\[{place}\].{name}: field 'image' would be moved at random, and not "
        rf"{other}.*move both in a map with the key; .* name its draws: draw: {named}$",
    ):
        plan(fields, *transforms)
    meant = {name: {**transforms[place][name], "draw": "meant"}}
    plan(fields, *transforms[:place], meant, *transforms[place + 1 :])


def test_both_pictures_need_a_name() -> None:
    named = {"random_flip_left_right": {"field": "image", "draw": "left"}}
    with pytest.raises(ConfigError, match=r"^transforms\[1\].* field 'other' would be .* 'image'"):
        plan("image other", named, {"random_flip_left_right": {"field": "other"}})


@pytest.mark.parametrize(
    ("fields", "transforms"),
    [
        ("image caption label", [FLIP, CROP]),
        ("image mask", [{"random_hue": {"field": "image", "max_delta": 0.1}}]),
        ("image mask", [FLIP, {"drop": {"fields": ["mask"]}}]),
        ("image png", [FLIP]),  # sent as bytes
        ("png mask", [DECODE, {"center_crop": {"field": "png", "size": [4, 4]}}]),
    ],
)
def test_other_fields_and_transforms_are_served(fields: str, transforms: list[Any]) -> None:
    plan(fields, *transforms)
