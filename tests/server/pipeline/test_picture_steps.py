"""Tests of `pipeline/picture_steps.py`: which steps are a chain, and what a chain draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed_server.pipeline.load import parse
from infeed_server.pipeline.picture_steps import PictureChain, find_chain, gather_pictures
from infeed_server.pipeline.sample_graph import step_key
from infeed_server.transforms.geometry import Crop

DECODE: dict[str, Any] = {"decode_image": {"field": "image"}}
GREY: dict[str, Any] = {"decode_image": {"field": "image", "channels": 1}}
MASK: dict[str, Any] = {"decode_image": {"field": "mask", "channels": 1}}
SIZE = {"field": "image", "size": [20, 30]}
RESIZE: dict[str, Any] = {"resize": SIZE}
FLIP: dict[str, Any] = {"random_flip_left_right": {"field": "image"}}
AREA: dict[str, Any] = {"resize": {**SIZE, "method": "area"}}
LABEL: dict[str, Any] = {"one_hot": {"field": "label", "depth": 3}}
CROPS: list[dict[str, Any]] = [
    {"random_resized_crop": {**SIZE, "scale": [0.5, 1.0]}},
    {"random_crop": SIZE},
    {"center_crop": SIZE},
]
SHORT: dict[str, Any] = {"resize": {"field": "image", "short_side": 40}}


def identity(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return sample


MAP: dict[str, Any] = {"map": {"function": identity}}


def chain_of(*transforms: dict[str, Any]) -> PictureChain | str:
    source = {"arrays": {"image": np.zeros(1)}}
    pipeline = parse({"source": source, "transforms": [*transforms], "batch": 1})
    return find_chain(gather_pictures([*enumerate(pipeline.transforms)]))


@pytest.mark.parametrize(
    ("transforms", "chain", "rest"),
    [
        ([DECODE, RESIZE], [0, 1], []),
        ([DECODE, CROPS[0], FLIP], [0, 1, 2], []),
        ([LABEL, DECODE, LABEL, CROPS[1], LABEL, FLIP, FLIP], [1, 3, 5], [0, 2, 4, 6]),
        ([DECODE, CROPS[2], RESIZE, FLIP, CROPS[1]], [0, 1, 2, 3], [4]),
        ([DECODE, CROPS[0], CROPS[1], RESIZE], [0, 1, 2], [3]),
        ([DECODE, SHORT, LABEL, CROPS[2], FLIP], [0, 1, 3, 4], [2]),
        ([DECODE, CROPS[2], SHORT], [0, 1], [2]),
        ([MASK, DECODE, RESIZE, FLIP], [1, 2, 3], [0]),
        ([DECODE, CROPS[2], AREA], [0, 1], [2]),
        ([DECODE, RESIZE, MAP, FLIP], [0, 1], [2, 3]),
    ],
)
def test_chain_has_the_steps_of_its_field(
    transforms: list[Any], chain: list[int], rest: list[int]
) -> None:
    found = chain_of(*transforms)
    assert isinstance(found, PictureChain)
    assert [ordinal for ordinal, _ in found.steps] == chain
    assert [ordinal for ordinal, _ in found.rest] == rest
    assert found.size == (20, 30)


@pytest.mark.parametrize(
    ("transforms", "reason"),
    [
        ([FLIP], ""),
        ([DECODE], "no crop or resize to a size directly follows decode_image"),
        ([DECODE, FLIP, RESIZE], "no crop or resize to a size directly follows decode_image"),
        ([DECODE, SHORT], "no crop or resize to a size directly follows decode_image"),
        ([MAP, DECODE, RESIZE], "map comes before decode_image"),
        ([GREY, RESIZE], "decode_image has channels: 1"),
        ([DECODE, AREA], "resize has method: area"),
    ],
)
def test_other_steps_have_a_reason(transforms: list[Any], reason: str) -> None:
    assert chain_of(*transforms) == reason


@pytest.mark.parametrize("crop", CROPS)
def test_chain_draws_what_the_graph_draws(crop: dict[str, Any]) -> None:
    chain = chain_of(DECODE, crop, FLIP)
    assert isinstance(chain, PictureChain)
    rng = np.random.default_rng(0)
    sizes, keys = rng.integers(30, 400, (200, 2), np.int32), rng.integers(0, 1 << 62, (200, 2))
    draws = tf.function(chain.draw, autograph=False)(sizes, tf.constant(keys))
    windows, flips = draws.windows, draws.flips
    crop_step, flip_step = chain.steps[1:]
    assert isinstance(crop_step[1], Crop)
    for size, key, window, flip in zip(sizes, keys, windows.numpy(), flips.numpy(), strict=True):
        alone = crop_step[1].choose_window(tf.constant([*size, 3]), step_key(crop_step, key))
        assert window.tolist() == alone.numpy().tolist()
        drawn = flip_step[1].draw({"image": tf.zeros([1, 1, 3])}, step_key(flip_step, key))
        assert flip == drawn["flipped"]


def test_windows_of_many_pictures_round_as_those_of_one() -> None:
    exact = {**SIZE, "scale": [0.75, 0.75], "ratio": [9.0, 9.0]}  # sides that end in a half
    chain = chain_of(DECODE, {"random_resized_crop": exact})
    assert isinstance(chain, PictureChain)
    sizes, keys = np.full((20, 2), (3, 49), np.int32), np.arange(40).reshape(20, 2)
    windows = [
        chain.draw(sizes[i : i + 1], tf.constant(keys[i : i + 1])).windows for i in range(20)
    ]
    together = chain.draw(sizes, tf.constant(keys)).windows
    assert together.numpy().tolist() == tf.concat(windows, 0).numpy().tolist()
    crop = chain.steps[1]
    assert isinstance(crop[1], Crop)
    one = crop[1].choose_window(tf.constant([3, 49, 3]), step_key(crop, tf.constant(keys[0])))
    assert together[0].numpy().tolist() == one.numpy().tolist()


def test_window_of_too_small_an_image_is_outside() -> None:
    for crop in CROPS[1:]:
        chain = chain_of(DECODE, crop)
        assert isinstance(chain, PictureChain)
        sizes = tf.constant([[19, 300], [0, 0]])
        windows = chain.draw(sizes, tf.zeros([2, 2], tf.int64)).windows
        begins, ends = windows[:, :2], windows[:, :2] + windows[:, 2:]
        assert tf.reduce_any((begins < 0) | (ends > sizes), 1).numpy().all()
