"""Decoding only the window: the same window and, but for a JPEG's rim, the same pixels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.errors import ConfigError
from infeed_server.transforms import (
    CenterCrop,
    DecodeImage,
    RandomCrop,
    RandomFlipLeftRight,
    RandomResizedCrop,
    Rename,
)
from infeed_server.transforms.fuse import DecodeAndCrop, fuse

CROPS = [
    CenterCrop(field="image", size=(60, 40)),
    RandomCrop(field="image", size=(60, 40)),
    RandomResizedCrop(field="image", size=(32, 24)),
]
CROP_NAMES = [crop.name for crop in CROPS]


def fused(channels: int, crop: Any) -> Any:
    decode = DecodeImage(field="image", channels=channels)  # type: ignore[arg-type]
    ((_, step),) = fuse([(0, decode), (1, crop)])
    assert isinstance(step, DecodeAndCrop)
    return SimpleNamespace(
        apply=step.apply, unfused=lambda s, key: crop.apply(decode.apply(s, key), key)
    )


def both(run_each: Any, step: Any, images: list[bytes], keys: Any) -> tuple[Any, Any]:
    """Of each image, what the fused step gives, and the two steps one after the other."""
    samples = {"image": np.array(images, object)}
    unfused = SimpleNamespace(apply=step.unfused)
    fused, two = (
        np.stack([each["image"] for each in run_each(one, samples, keys)])
        for one in (step, unfused)
    )
    return fused, two


@pytest.mark.parametrize("crop", CROPS, ids=CROP_NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_gives_the_same_bits(run_each: Any, crop: Any, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
    png = tf.io.encode_png(pixels).numpy()
    keys = [(0, 0), (1, 0), (9, 9)]
    result, expected = both(run_each, fused(channels, crop), [png] * 3, keys)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("crop", CROPS[:2], ids=CROP_NAMES[:2])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_jpeg_gives_the_same_window(
    run_each: Any, jpegs: list[bytes], crop: Any, channels: int
) -> None:
    keys = [(number, 1) for number in range(len(jpegs))]
    result, expected = both(run_each, fused(channels, crop), jpegs, keys)
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result[:, 2:-2, 2:-2], expected[:, 2:-2, 2:-2])


def test_a_jpeg_is_resized_from_the_same_window(run_each: Any, jpegs: list[bytes]) -> None:
    keys = [(number, 1) for number in range(len(jpegs))]
    for result, expected in zip(*both(run_each, fused(3, CROPS[2]), jpegs, keys), strict=True):
        difference = np.abs(result.astype(int) - expected)
        assert difference.mean() < 1
        assert difference[2:-2, 2:-2].max() <= 2


def test_a_jpeg_without_subsampled_colour_gives_the_same_bits(run_each: Any) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
    jpeg = tf.io.encode_jpeg(pixels, chroma_downsampling=False).numpy()
    for crop in CROPS:
        np.testing.assert_array_equal(*both(run_each, fused(3, crop), [jpeg], [(17, 4)]))


def test_the_crops_ordinal_and_all_other_steps_are_kept() -> None:
    decode, other = DecodeImage(field="image"), DecodeImage(field="mask")
    flip = RandomFlipLeftRight(field="image")
    steps = fuse([(0, other), (3, decode), (5, CROPS[1]), (6, flip)])
    assert [ordinal for ordinal, _ in steps] == [0, 5, 6]
    assert steps[0] == (0, other)
    joined = steps[1][1]
    assert isinstance(joined, DecodeAndCrop)
    assert (joined.decode, joined.crop) == (decode, CROPS[1])
    assert joined.random
    assert joined.fields() == {"image"}
    assert joined.identity() == {"decode_and_crop": [decode.identity(), CROPS[1].identity()]}
    assert steps[2] == (6, flip)


@pytest.mark.parametrize(
    "steps",
    [
        [DecodeImage(field="mask"), CROPS[0]],
        [DecodeImage(field="image", channels=4), CROPS[0]],
        [DecodeImage(field="image", channels=0), CROPS[0]],
        [DecodeImage(field="image"), Rename(fields={"a": "b"}), CROPS[0]],
        [CROPS[0], CROPS[1]],
        [],
    ],
)
def test_what_does_not_fit_is_left_alone(steps: list[Any]) -> None:
    numbered = list(enumerate(steps))
    assert fuse(numbered) == numbered


def test_shapes_and_errors_are_those_of_the_two_steps(spec: Any, run: Any) -> None:
    before = {"image": tf.TensorSpec([], tf.string)}
    for crop in CROPS:
        after = spec(fused(3, crop), before)["image"]
        assert after == tf.TensorSpec([*crop.size, 3], tf.uint8)
    small = tf.io.encode_jpeg(np.zeros((20, 30, 3), "u1")).numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)at least 60 x 40.*20 30"):
        run(fused(3, CROPS[1]), {"image": small})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
        run(fused(3, CROPS[1]), {"image": b"no image"})
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(fused(3, CROPS[1]), {"image": b"\xff\xd8\xff\xe0 a torn file"})
    with pytest.raises(ConfigError, match="decode_image: no field 'image'; available: x"):
        spec(fused(3, CROPS[1]), {"x": before["image"]})
    with pytest.raises(ConfigError, match="decode_image: field 'image' holds uint8"):
        spec(fused(3, CROPS[1]), {"image": tf.TensorSpec([9, 9, 3], tf.uint8)})
