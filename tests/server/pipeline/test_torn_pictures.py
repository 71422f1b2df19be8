"""Random geometry of one of several fields: refused, unless it is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.tfrecords import write_records

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import open_source

PNG = tf.io.encode_png(np.zeros((8, 8, 3), np.uint8)).numpy()
NUMBERS = np.random.default_rng(0)


ARRAYS: dict[str, Any] = {
    "image": np.zeros((4, 8, 8, 3), np.uint8),
    "mask": np.zeros((4, 8, 8), np.uint8),
    "depth": np.zeros((4, 4, 4, 1), np.float32),
    "other": np.zeros((4, 8, 8, 1), np.uint8),
    "png": np.array([PNG] * 4, object),
    "boxes": np.zeros((4, 20, 4), np.float32),
    "caption": np.zeros((4, 5, 64), np.int32),
    "label": np.zeros(4, np.int64),
    "box": np.array([[1, 2, 5, 6]] * 4, np.int32),
    "points": np.ones((4, 17, 2), np.float32) / 3,
    "small": np.zeros((4, 4, 4), np.uint8),
    "wide": np.zeros((4, 37, 50, 3), np.uint8),
    "quarter": np.zeros((4, 10, 13), np.uint8),
    "packed": np.array([b"x" * 64] * 4, object),
    "one_hot": np.eye(4, dtype=np.float32),
    "ten": np.eye(10, dtype=np.float32)[:4],
    "shares": np.array([[0.7, 0.1, 0.1, 0.1]] * 4),
    "embedding": NUMBERS.normal(size=(4, 64)).astype(np.float32),
    "text": np.array([b"BMW, on a road", b"", b"cat", b"dog"], object),
}
FLIP: dict[str, Any] = {"random_flip_left_right": {"field": "image"}}
CROP: dict[str, Any] = {"random_crop": {"field": "image", "size": [6, 6]}}
RESIZE: dict[str, Any] = {"resize": {"field": "png", "size": [4, 4]}}
RESIZE8: dict[str, Any] = {"resize": {"field": "png", "size": [8, 8]}}
DECODE: dict[str, Any] = {"decode_image": {"field": "png"}}


def plan(fields: str, *transforms: Any) -> None:
    source = {"arrays": {name: ARRAYS[name] for name in fields.split()}}
    definition = parse({"source": source, "transforms": list(transforms), "batch": 2})
    plan_indexed("p", definition, open_source(definition.source))


def cut_out(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "image": sample["image"] * sample["mask"][..., None]}


DROP = {"drop": {"fields": ["mask"]}}
BOX = {"decode_raw": {"field": "packed", "dtype": "float64", "shape": [2, 4]}}
MASK = {"decode_raw": {"field": "packed", "shape": [8, 8]}}


@pytest.mark.parametrize(
    ("fields", "transforms", "other"),
    [
        ("image mask label", [FLIP], r"'mask', which is a picture too \(uint8\[8, 8\]\)"),
        ("image mask", [FLIP, {"map": lambda sample: sample}], "'mask', which is a picture too"),
        ("image mask", [FLIP, {"map": cut_out}, DROP], "'mask', which is a picture too"),
        ("wide quarter", [{"random_flip_left_right": {"field": "wide"}}], "'quarter', which is a"),
        ("image depth", [CROP], r"'depth', which is a picture too \(float32\[4, 4, 1\]\)"),
        ("image small", [FLIP], r"'small', which is a picture too \(uint8\[4, 4\]\)"),
        ("png mask", [DECODE, {"random_flip_left_right": {"field": "png"}}, RESIZE8], "'mask'"),
        ("image boxes", [FLIP], r"'boxes', whose rows may be boxes or points \(float32\[20, 4\]"),
        ("image points", [FLIP], "'points', whose rows may be boxes or points"),
        ("image png", [FLIP], r"'png', which holds encoded pictures \(bytes\[\]\)"),
        ("image packed", [FLIP, BOX], r"'packed', .* boxes .*float64\[2, 4\], decoded later"),
        ("image packed", [FLIP, MASK], r"'packed', .* picture too .*, decoded later"),
        ("image png", [FLIP, DECODE, RESIZE], r"'png', .*uint8\[\?, \?, 3\], decoded later"),
        ("image png", [DECODE, FLIP, RESIZE], r"'png', which is a picture too"),
        (
            "image png",
            [
                {"rename": {"fields": {"png": "x"}}},
                FLIP,
                {"rename": {"fields": {"x": "png"}}},
                DECODE,
                RESIZE,
            ],
            "'x', which is a picture too",
        ),
    ],
)
def test_random_geometry_of_one_picture_is_refused(
    fields: str, transforms: list[Any], other: str
) -> None:
    place = next(n for n, step in enumerate(transforms) if next(iter(step)).startswith("random"))
    (name,) = transforms[place]
    field = transforms[place][name]["field"]
    named = name.replace("random", field)
    with pytest.raises(
        ConfigError,
        match=rf"^transforms\[{place}\].{name}: field '{field}' would move at random without "
        rf"{other}.*To move both, write targets: {{.* \(docs/targets.md\).*: draw: {named}$",
    ):
        plan(fields, *transforms)
    meant = {name: {**transforms[place][name], "draw": "meant"}}
    plan(fields, *transforms[:place], meant, *transforms[place + 1 :])


def test_both_pictures_need_a_name() -> None:
    named = {"random_flip_left_right": {"field": "image", "draw": "left"}}
    with pytest.raises(ConfigError, match=r"^transforms\[1\].* field 'other' would .* 'image'"):
        plan("image other", named, {"random_flip_left_right": {"field": "other"}})


@pytest.mark.parametrize(
    ("fields", "transforms"),
    [
        ("image caption label", [FLIP, CROP]),
        ("image mask", [{"random_hue": {"field": "image", "max_delta": 0.1}}]),
        ("image mask", [FLIP, DROP]),
        ("image one_hot ten shares embedding", [FLIP, CROP]),
        ("image text box", [FLIP]),
        ("image label", [{"one_hot": {"field": "label", "depth": 4}}, FLIP]),
        ("image label", [FLIP, {"one_hot": {"field": "label", "depth": 4}}]),
        ("image png", [FLIP, {"drop": {"fields": ["png"]}}]),
        ("png mask", [DECODE, {"center_crop": {"field": "png", "size": [4, 4]}}]),
    ],
)
def test_other_fields_and_transforms_are_served(fields: str, transforms: list[Any]) -> None:
    plan(fields, *transforms)


def test_a_record_that_cannot_be_parsed_is_no_sample_to_look_at(tmp_path: Path) -> None:
    write_records(tmp_path / "x.tfrecord", [b"\xff\xff", b"\x80 is no UTF-8"])
    source = {
        "tfrecord": str(tmp_path / "x.tfrecord"),
        "features": {"image": {"type": "float32", "shape": [8, 8, 3]}, "caption": "bytes"},
    }
    definition = parse({"source": source, "transforms": [FLIP], "batch": 2, "on_error": "mask"})
    plan_indexed("p", definition, open_source(definition.source))
