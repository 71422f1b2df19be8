"""Targets in a pipeline: with each decoder, cache and order of steps, and what is refused."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from infeed.shared.errors import ConfigError
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.native_pictures import decode_threads
from infeed_server.sources.registry import open_source
from infeed_server.transforms import DecodeImage
from infeed_server.transforms.images.sizes import decoded_size

DECODE: list[Any] = [
    {"decode_image": {"field": "image"}},
    {"decode_image": {"field": "mask", "channels": 1}},
]
MOVES: list[Any] = [
    {"random_resized_crop": {"size": [48, 64], "field": "image"}},
    {"random_flip_left_right": {"field": "image"}},
]
TARGETS: dict[str, Any] = {
    "mask": "mask",
    "boxes": {"boxes": {"normalized": True, "with": ["label"], "pad": 2}},
}
KEYS = np.arange(12).reshape(6, 2)


def halved(sample: Any) -> Any:
    return sample | {name: sample[name][::2, ::2] for name in ("image", "mask")}


@pytest.fixture(scope="module")
def source(photos: SimpleNamespace) -> dict[str, Any]:
    """Photos, each with a rectangle as a mask and as a box."""
    names = sorted(photos.labels)[:6]
    images, masks = np.empty(6, object), np.empty(6, object)
    boxes = np.zeros((6, 1, 4), np.float32)
    for number, name in enumerate(names):
        images[number] = (photos.folder / name).read_bytes()
        height, width = tf.io.decode_jpeg(images[number]).shape[:2]
        mask = np.zeros((height, width, 1), np.uint8)
        top, left, bottom, right = height // 5, width // 4, height * 4 // 5, width * 3 // 4
        mask[top:bottom, left:right] = 7
        masks[number] = tf.io.encode_png(mask).numpy()
        boxes[number] = [left / width, top / height, right / width, bottom / height]
    labels = np.arange(6)[:, None]
    return {"arrays": {"image": images, "mask": masks, "boxes": boxes, "label": labels}}


def plan(source: Any, transforms: Any, decoder: str = "tensorflow", **other: Any) -> IndexedPlan:
    value = {"source": source, "transforms": transforms, "batch": 2, "targets": TARGETS, **other}
    definition = parse(value)
    opened = open_source(definition.source)
    return plan_indexed("p", definition, opened, decoder=decoder)


def fields(made: IndexedPlan) -> dict[str, Any]:
    columns = made.read(np.arange(6), KEYS)
    function, specs = made.sample_function(), made.source.columns
    if made.native is not None:
        columns = made.native.make(columns, KEYS, decode_threads().map).left
        function, specs = made.native.sample_function(), made.native.columns
    found = sample_graph.columns_function(specs, function)(columns, KEYS)
    return {name: value.numpy() for name, value in found.items()}


def check_aligned(found: dict[str, Any]) -> None:
    """Checks that the box is around the mask, within the pixels of the nearest."""
    assert set(found) == {"image", "mask", "boxes", "label", "boxes_count"}
    size = np.array(found["image"].shape[2:0:-1] * 2)
    for mask, boxes, count in zip(found["mask"], found["boxes"], found["boxes_count"], strict=True):
        assert count == mask.any()
        if count:
            y, x = np.nonzero(mask[..., 0])
            around = np.array([x.min(), y.min(), x.max() + 1, y.max() + 1])
            np.testing.assert_allclose(boxes[0] * size, around, atol=1)


def test_both_decoders_move_targets_by_one_draw(source: Any) -> None:
    first = fields(plan(source, [*DECODE, *MOVES]))
    check_aligned(first)
    native = plan(source, [*DECODE, *MOVES], "native")
    second = fields(native)
    assert native.native is not None
    assert native.native.counts.by_decoder()["native"] == 6
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


@pytest.mark.parametrize(
    "steps",
    [
        [*DECODE, {"resize": {"field": "image", "size": [40, 40]}}, "cache", MOVES[1]],
        [*DECODE, "cache", *MOVES],
        [*DECODE, MOVES[1], {"map": halved}, MOVES[0]],
        [*DECODE, {"rename": {"fields": {"x": "label"}}}, *MOVES],
    ],
    ids=["resized", "cached", "mapped", "renamed"],
)  # fmt: skip
def test_targets_follow_whatever_stands_between(source: Any, steps: Any) -> None:
    arrays = source["arrays"]
    if {"rename": {"fields": {"x": "label"}}} in steps:
        arrays = {"x" if name == "label" else name: x for name, x in arrays.items()}
    check_aligned(fields(plan({"arrays": arrays}, steps)))


def test_pictures_that_are_decoded_already_move_too() -> None:
    arrays = {
        "image": np.zeros((6, 30, 40, 3), np.uint8),
        "mask": np.zeros((6, 30, 40, 1), np.uint8),
        "boxes": np.full((6, 1, 4), [[0.25, 0.5, 0.5, 1]], np.float32),
        "label": np.zeros((6, 1), np.int64),
    }
    arrays["mask"][:, 15:, 10:20] = 1
    check_aligned(fields(plan({"arrays": arrays}, MOVES)))


@pytest.mark.parametrize("names", [("image", "pic"), ("pic", "image")])
def test_a_picture_that_moves_under_two_names_is_refused(names: Any) -> None:
    arrays = {names[0]: np.zeros((6, 4, 4, 3), np.uint8), "boxes": np.zeros((6, 1, 4), np.float32)}
    flips = [{"random_flip_left_right": {"field": name, "draw": name}} for name in names]
    steps = [flips[0], {"rename": {"fields": dict([names])}}, flips[1]]
    problem = f"'{names[1]}' is '{names[0]}' renamed .* boxes would miss .* put the rename before"
    with pytest.raises(ConfigError, match=problem):
        plan({"arrays": arrays}, steps, targets={"boxes": {"boxes": {"pad": 1}}})


def test_rows_that_are_padded_already_move_without_their_zeros() -> None:
    arrays = {
        "image": np.zeros((6, 10, 10, 3), np.uint8),
        "boxes": np.tile(np.float32([[1, 1, 4, 9], [0, 0, 0, 0]]), (6, 1, 1)),
        "label": np.tile([3, 0], (6, 1)),
        "boxes_count": np.full(6, 1),
    }
    targets = {"boxes": {"boxes": {"with": ["label"], "pad": 3, "outside": "keep"}}}
    flip = {"random_flip_left_right": {"field": "image"}}
    found = fields(plan({"arrays": arrays}, [flip], targets=targets))
    assert {tuple(boxes[0]) for boxes in found["boxes"].tolist()} == {(1, 1, 4, 9), (6, 1, 9, 9)}
    assert not found["boxes"][:, 1:].any()
    assert (found["boxes_count"].tolist(), found["label"].tolist()) == ([1] * 6, [[3, 0, 0]] * 6)
    arrays["boxes_count"] = np.float32([0.5] * 6)
    with pytest.raises(ConfigError, match=r"'boxes_count' holds float32.*, not the number of"):
        plan({"arrays": arrays}, [flip], targets=targets)


def test_targets_of_a_still_picture_are_padded(source: Any) -> None:
    made = plan(source, [{"drop": {"fields": ["image"]}}, {"drop": {"fields": ["mask"]}}], targets={
        "boxes": {"boxes": {"with": ["label"], "pad": 3, "of": "label"}},
    })  # fmt: skip
    found = fields(made)
    assert (found["boxes"].shape, found["boxes_count"].tolist()) == ((6, 3, 4), [1] * 6)


def test_the_fingerprint_has_targets_only_where_there_are(source: Any) -> None:
    def fingerprint(**targets: Any) -> str:
        transforms = [
            *DECODE,
            {"resize": {"field": "image", "size": [4, 4]}},
            {"drop": {"fields": ["mask"]}},
        ]
        return plan(source, transforms, targets=targets).spec.fingerprint  # fmt: skip

    keep = {"boxes": {"outside": "keep", "normalized": True}}
    assert fingerprint() == fingerprint()
    assert (
        len({fingerprint(), fingerprint(boxes=keep), fingerprint(boxes={"boxes": {"pad": 1}})}) == 3
    )


@pytest.mark.parametrize(
    ("transforms", "targets", "problem"),
    [
        ([{"random_flip_left_right": {"field": "mask"}}], TARGETS, "'mask' is a target of"),
        (MOVES, {"masks": "mask"}, "targets.masks: no field 'masks'"),
        (MOVES, {"mask": {"mask": {"of": "picture"}}}, "targets.mask: no field 'picture'"),
        (MOVES, {"boxes": "boxes"}, "the number of boxes varies, .*; add pad"),
        (MOVES, {"mask": "mask"}, r"without 'boxes', whose rows .* targets: \{boxes: boxes\}"),
    ],
)  # fmt: skip
def test_definitions_that_take_targets_apart_are_refused(
    source: Any, transforms: Any, targets: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan(source, [*DECODE, *transforms], targets=targets)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("masks", "unknown key 'masks'"),
        ({"boxes": "xxyy"}, "should be 'xyxy', 'xywh' or 'cxcywh'"),
        ({"mask": {}, "boxes": {}}, "should be mask, boxes or keypoints"),
        ({"boxes": {"pads": 3}}, "unknown key 'pads'"),
    ],
)
def test_a_wrong_target_is_an_error_in_words(value: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse({"source": {"arrays": {}}, "targets": {"mask": value}})


def test_the_size_of_each_format_is_of_what_is_decoded() -> None:
    picture = Image.fromarray(np.zeros((37, 50, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in ("jpeg", "jpeg with exif", "png", "bmp", "gif"):
        buffer = io.BytesIO()
        picture.save(buffer, kind.split()[0], **({"exif": exif} if "exif" in kind else {}))
        for step in (DecodeImage(field="x"), DecodeImage(field="x", exif="apply", scale=2)):
            contents = tf.constant(buffer.getvalue())
            expected = step.apply_field(contents, tf.constant([0, 0], tf.int64)).shape[:2]
            assert decoded_size(contents, step.decoding).numpy().tolist() == [*expected], kind
