"""The fused step: the same window, and the same pixels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tests.harness import pictures

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.picture_steps import fuse_decode_and_crop
from infeed_server.transforms import (
    CenterCrop,
    DecodeImage,
    RandomCrop,
    RandomFlipLeftRight,
    RandomResizedCrop,
    Rename,
)
from infeed_server.transforms.decode import DecodeAndCrop

CROPS = [
    CenterCrop(field="image", size=(60, 40)),
    RandomCrop(field="image", size=(60, 40)),
    RandomResizedCrop(field="image", size=(32, 24)),
]


def fuse(channels: int, crop: Any, **options: Any) -> Any:
    decode = DecodeImage(field="image", channels=channels, **options)  # type: ignore[arg-type]
    ((_, step),) = fuse_decode_and_crop([(0, decode), (1, crop)])
    assert isinstance(step, DecodeAndCrop)
    return SimpleNamespace(
        apply=step.apply, apply_separately=lambda s, key: crop.apply(decode.apply(s, key), key)
    )


def apply_both(run_each: Any, step: Any, images: list[bytes], keys: Any) -> tuple[Any, Any]:
    """Applies the fused step in a graph, and the two separate ones eagerly, to each image."""
    fused = run_each(step, {"image": np.array(images, object)}, keys)
    separate = [
        step.apply_separately({"image": tf.constant(image)}, tf.constant(key, tf.int64))
        for image, key in zip(images, keys, strict=True)
    ]
    both = [np.stack([item["image"] for item in every]) for every in (fused, separate)]
    return both[0], both[1]


@pytest.mark.parametrize(("crop", "channels"), [(CROPS[0], 1), (CROPS[1], 3), (CROPS[2], 3)])
def test_png_gives_the_same_bits(run_each: Any, crop: Any, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
    png = tf.io.encode_png(pixels).numpy()
    keys = [(0, 0), (1, 0), (9, 9)]
    result, expected = apply_both(run_each, fuse(channels, crop), [png] * 3, keys)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("crop", "channels"), [(CROPS[0], 1), (CROPS[1], 3)])
def test_jpeg_gives_the_same_window(
    run_each: Any, jpegs: list[bytes], crop: Any, channels: int
) -> None:
    jpegs = [*jpegs, jpegs[1] + b"\0"]  # decoded whole
    keys = [(number, 1) for number in range(len(jpegs))]
    result, expected = apply_both(run_each, fuse(channels, crop), jpegs, keys)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("option", ["apply", "ignore"])
def test_truncated_jpeg_is_bad_wherever_the_window_lies(run_eagerly: Any, option: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 40, 3), np.uint8)
    jpeg = tf.io.encode_jpeg(pixels).numpy()
    step = fuse(3, CenterCrop(field="image", size=(40, 40)), exif=option)
    run_eagerly(step, {"image": jpeg})
    turned = pictures.insert(jpeg, pictures.exif_segment(pictures.exif(3)))
    for contents in (jpeg[:-2], jpeg[: len(jpeg) * 3 // 4], jpeg[:-99] + bytes(99), turned[:-99]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid JPEG data"):
            run_eagerly(step, {"image": contents})


def test_jpeg_is_resized_from_the_same_window(run_each: Any, jpegs: list[bytes]) -> None:
    keys = [(number, 1) for number in range(len(jpegs))]
    np.testing.assert_array_equal(*apply_both(run_each, fuse(3, CROPS[2]), jpegs, keys))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_window_anywhere_has_the_bits_of_the_whole_image(run_each: Any, subsampling: int) -> None:
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (61, 41 + n, 3), np.uint8)) for n in range(4)]
    jpegs = [pictures.encode("JPEG", image, subsampling=subsampling) for image in images] * 6
    keys = [(number, 1) for number in range(len(jpegs))]
    crop = RandomCrop(field="image", size=(60, 40))
    np.testing.assert_array_equal(*apply_both(run_each, fuse(3, crop), jpegs, keys))


@pytest.mark.parametrize("option", ["apply", "ignore"])
def test_exif_is_applied_before_the_crop(run_each: Any, option: str) -> None:
    crop = CROPS[1]
    pixels = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
    jpeg = tf.io.encode_jpeg(pixels, chroma_downsampling=False).numpy()
    images = [
        pictures.insert(jpeg, pictures.exif_segment(pictures.exif(value))) for value in range(1, 9)
    ]
    keys = [(number, 3) for number in range(8)]
    result, expected = apply_both(run_each, fuse(3, crop, exif=option), images, keys)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_cmyk_and_grey_jpegs_give_the_same_bits(run_each: Any, channels: int) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8))
    jpegs = [pictures.encode("JPEG", image.convert(kind), subsampling=0) for kind in ("CMYK", "L")]
    step = fuse(channels, CROPS[1])
    np.testing.assert_array_equal(*apply_both(run_each, step, jpegs, [(5, 6)] * 2))


def test_fusing_keeps_the_crops_ordinal_and_other_steps() -> None:
    decode, other = DecodeImage(field="image"), DecodeImage(field="mask")
    flip = RandomFlipLeftRight(field="image")
    steps = fuse_decode_and_crop([(0, other), (3, decode), (5, CROPS[1]), (6, flip)])
    assert [ordinal for ordinal, _ in steps] == [0, 5, 6]
    assert steps[0] == (0, other)
    fused = steps[1][1]
    assert isinstance(fused, DecodeAndCrop)
    assert (fused.decode, fused.crop) == (decode, CROPS[1])
    assert fused.random
    assert fused.fields() == {"image"}
    assert fused.identity() == {"decode_and_crop": [decode.identity(), CROPS[1].identity()]}
    assert steps[2] == (6, flip)


@pytest.mark.parametrize(
    "steps",
    [
        [DecodeImage(field="mask"), CROPS[0]],
        [DecodeImage(field="image", channels=4), CROPS[0]],
        [DecodeImage(field="image", dtype="uint16"), CROPS[0]],
        [DecodeImage(field="image"), Rename(fields={"a": "b"}), CROPS[0]],
    ],
)
def test_other_steps_are_not_fused(steps: list[Any]) -> None:
    with_ordinals = list(enumerate(steps))
    assert fuse_decode_and_crop(with_ordinals) == with_ordinals


def test_fused_step_has_the_same_shapes_and_errors(spec: Any, run_eagerly: Any) -> None:
    before = {"image": tf.TensorSpec([], tf.string)}
    for crop in CROPS:
        after = spec(fuse(3, crop), before)["image"]
        assert after == tf.TensorSpec([*crop.size, 3], tf.uint8)
    small = tf.io.encode_jpeg(np.zeros((20, 30, 3), "u1")).numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)at least 60 x 40.*20, 30"):
        run_eagerly(fuse(3, CROPS[1]), {"image": small})
    with pytest.raises(tf.errors.InvalidArgumentError):
        run_eagerly(fuse(3, CROPS[1]), {"image": b"\xff\xd8\xff\xe0 a torn file"})
    with pytest.raises(ConfigError, match="decode_image: field 'image' holds uint8"):
        spec(fuse(3, CROPS[1]), {"image": tf.TensorSpec([9, 9, 3], tf.uint8)})
