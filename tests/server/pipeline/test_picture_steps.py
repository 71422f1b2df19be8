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
SIZE = {"field": "image", "size": [20, 30]}
RESIZE: dict[str, Any] = {"resize": SIZE}
FLIP: dict[str, Any] = {"random_flip_left_right": {"field": "image"}}
LABEL: dict[str, Any] = {"one_hot": {"field": "label", "depth": 3}}
CROPS: list[dict[str, Any]] = [
    {"random_resized_crop": {**SIZE, "scale": [0.5, 1.0]}},
    {"random_crop": SIZE},
    {"center_crop": SIZE},
]


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
        ([DECODE, CROPS[2], RESIZE, FLIP], [0, 1], [2, 3]),
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
        ([DECODE], "no crop or resize is right behind decode_image"),
        ([DECODE, FLIP, RESIZE], "no crop or resize is right behind decode_image"),
        ([MAP, DECODE, RESIZE], "map stands before decode_image"),
        ([GREY, RESIZE], "decode_image has channels: 1"),
        ([DECODE, {"resize": {**SIZE, "antialias": True}}], "resize has antialias: True"),
        ([DECODE, {"resize": {"field": "image", "short_side": 9}}], "resize has short_side: 9"),
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
    windows, flips = tf.function(chain.draw, autograph=False)(sizes, tf.constant(keys))
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
    windows = [chain.draw(sizes[i : i + 1], tf.constant(keys[i : i + 1]))[0] for i in range(20)]
    together, _ = chain.draw(sizes, tf.constant(keys))
    assert together.numpy().tolist() == tf.concat(windows, 0).numpy().tolist()
    crop = chain.steps[1]
    assert isinstance(crop[1], Crop)
    one = crop[1].choose_window(tf.constant([3, 49, 3]), step_key(crop, tf.constant(keys[0])))
    assert together[0].numpy().tolist() == one.numpy().tolist()


def test_window_of_too_small_an_image_is_outside() -> None:
    for crop in CROPS[1:]:
        chain = chain_of(DECODE, crop)
        assert isinstance(chain, PictureChain)
        windows, _ = chain.draw(tf.constant([[19, 300], [0, 0]]), tf.zeros([2, 2], tf.int64))
        begins, sizes = windows.numpy()[:, :2], windows.numpy()[:, 2:]
        assert ((begins < 0) | (begins + sizes > [[19, 300], [0, 0]])).any(axis=1).all()
