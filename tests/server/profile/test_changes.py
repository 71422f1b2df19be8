"""Proposals: lists of transforms that do the same for less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import tensorflow as tf
from pydantic import TypeAdapter

from infeed_server.profile.changes import cache_prefix, crop_first, finish_last
from infeed_server.transforms import TransformList
from infeed_server.transforms.base import Transform

DECODE = {"decode_image": {"field": "image"}}
RESIZE = {"resize": {"field": "image", "size": [256, 256]}}
RANDOM_CROP = {"random_crop": {"field": "image", "size": [224, 224]}}
CENTER_CROP = {"center_crop": {"field": "image", "size": [128, 64]}}
FLIP = {"random_flip_left_right": {"field": "image"}}
NORMALIZE = {"normalize": {"field": "image", "scale": 255}}
CAST = {"cast": {"field": "image", "dtype": "float16"}}


def listed(*transforms: Any) -> Sequence[Transform]:
    made: Sequence[Transform] = TypeAdapter(TransformList).validate_python(list(transforms))
    return made


def names(transforms: Sequence[Transform]) -> list[str]:
    return [each.name for each in transforms]


def test_random_crop_behind_a_resize_becomes_a_crop_of_the_same_share() -> None:
    (proposal,) = crop_first(listed(DECODE, RESIZE, RANDOM_CROP, FLIP), {})
    assert names(proposal.transforms) == [
        "decode_image",
        "random_resized_crop",
        "random_flip_left_right",
    ]
    changed = proposal.transforms[1].model_dump()
    assert (changed["size"], changed["scale"]) == ((224, 224), (0.766, 0.766))
    assert "256 x 256 pixels, of which random_crop keeps 77%" in proposal.text
    assert "in their place; the pictures are alike, not equal" in proposal.text
    assert changed["ratio"] == (0.75, pytest.approx(4 / 3))


def test_windows_keep_the_shape_that_they_have_behind_a_resize_to_a_square() -> None:
    transforms = listed(DECODE, RESIZE, RANDOM_CROP)
    (proposal,) = crop_first(transforms, {0: {(1500, 2000), (300, 600)}})
    assert proposal.transforms[1].model_dump()["ratio"] == (1.333, 2.0)
    assert "ratio: [1.333, 2.0]" in proposal.text


def test_center_crop_behind_a_resize_comes_first_where_all_images_have_one_size() -> None:
    transforms = listed(DECODE, RESIZE, CENTER_CROP)
    (proposal,) = crop_first(transforms, {0: {(512, 1024)}})
    _, crop, resize = proposal.transforms
    assert (crop.name, crop.model_dump()["size"]) == ("center_crop", (256, 256))
    assert (resize.name, resize.model_dump()["size"]) == ("resize", (128, 64))
    assert not list(crop_first(transforms, {0: {(512, 1024), (300, 300)}}))


def test_no_crop_is_proposed_where_the_resize_is_last_or_of_another_field() -> None:
    other = {"random_crop": {"field": "other", "size": [224, 224]}}
    for transforms in (listed(DECODE, RESIZE), listed(DECODE, RESIZE, other)):
        assert not list(crop_first(transforms, {}))


def test_normalize_before_a_flip_moves_to_the_end_with_what_follows_it() -> None:
    transforms = listed(DECODE, RESIZE, NORMALIZE, FLIP, CAST)
    (proposal,) = finish_last(transforms, {0, 1, 2, 3})
    assert names(proposal.transforms) == [
        "decode_image",
        "resize",
        "random_flip_left_right",
        "normalize",
        "cast",
    ]
    assert "normalize (transforms[2]) runs at the server" in proposal.text


def test_normalize_before_a_transform_that_computes_with_pixels_stays() -> None:
    contrast = {"random_contrast": {"field": "image", "lower": 0.5, "upper": 1.5}}
    for behind in (contrast, RESIZE, {"map": {"function": "math:sqrt"}}):
        assert not list(finish_last(listed(DECODE, NORMALIZE, behind), {0, 1, 2}))


def test_normalize_that_the_trainer_runs_stays() -> None:
    assert not list(finish_last(listed(DECODE, FLIP, NORMALIZE), {0, 1}))


def test_cache_is_behind_the_last_fixed_shape_before_randomness() -> None:
    text = {"image": tf.TensorSpec([], tf.string)}
    varying = {"image": tf.TensorSpec([None, None, 3], tf.uint8)}
    fixed = {"image": tf.TensorSpec([256, 256, 3], tf.uint8)}
    transforms = listed(DECODE, RESIZE, FLIP)
    specs = [text, varying, fixed, fixed]
    (proposal,) = cache_prefix(transforms, specs, 1000, 1 << 30)
    assert names(proposal.transforms) == [
        "decode_image",
        "resize",
        "cache",
        "random_flip_left_right",
    ]
    assert "188 MiB" in proposal.text
    assert not list(cache_prefix(transforms, specs, 1000, 100 << 20)), "too little memory"
    assert not list(cache_prefix(listed(DECODE, FLIP), [text, varying, varying], 10, 1 << 30))
    assert not list(cache_prefix(listed(DECODE, "cache"), [text, fixed, fixed], 10, 1 << 30))
