"""Decoding at a smaller scale: sizes, pixels, fingerprint, and crops that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from pydantic import ValidationError
from tests.harness import pictures

from infeed_server.pipeline.picture_steps import fuse_decode_and_crop
from infeed_server.transforms import CenterCrop, DecodeImage

SMALL = np.random.default_rng(4).integers(0, 256, (6, 8, 3), np.uint8)
SMOOTH = Image.fromarray(SMALL).resize((91, 70), Image.Resampling.BICUBIC)
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")


def decode_each(run_each: Any, files: list[bytes], **options: Any) -> list[Any]:
    step = DecodeImage(field="x", **options)
    items = run_each(step, {"x": np.array(files, object)}, [(0, 0)] * len(files))
    return [item["x"] for item in items]


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_all_formats_have_one_size_rule_and_near_pixels(run_each: Any, scale: int) -> None:
    even = SMOOTH.crop((0, 0, 88, 64))
    files = [pictures.encode(name, image) for image in (even, SMOOTH) for name in FORMATS]
    small = decode_each(run_each, files, scale=scale)
    expected = np.asarray(even.resize((88 // scale, 64 // scale), Image.Resampling.BOX))
    for name, pixels, odd in zip(FORMATS, small, small[len(FORMATS) :], strict=False):
        assert pixels.shape == expected.shape, name
        assert np.abs(pixels.astype(int) - expected).mean() < 8, name
        assert odd.shape == (-(-70 // scale), -(-91 // scale), 3), name


def test_blocks_are_averaged_and_rounded(run_each: Any) -> None:
    pixels = np.array([[0, 1, 9], [0, 1, 8]], np.uint8)
    png = pictures.encode("PNG", Image.fromarray(pixels))
    (small,) = decode_each(run_each, [png], channels=1, scale=2)
    assert small[..., 0].tolist() == [[1, 9]]
    (deep,) = decode_each(run_each, [png], channels=1, scale=2, dtype="uint16")
    assert deep[..., 0].tolist() == [[129, 2185]]  # 257 times the means, 0.5 and 8.5


def test_jpeg_is_decoded_by_the_library_at_the_scale(run_each: Any) -> None:
    jpeg = pictures.encode("JPEG", SMOOTH)
    (small,) = decode_each(run_each, [jpeg], scale=4)
    np.testing.assert_array_equal(small, tf.io.decode_jpeg(jpeg, 3, ratio=4))
    turned = pictures.insert(jpeg, pictures.exif_segment(pictures.exif(6)))
    (upright,) = decode_each(run_each, [turned], scale=4, exif="apply")
    np.testing.assert_array_equal(upright, np.rot90(small, -1))


def test_scale_that_no_decoder_has_is_refused() -> None:
    with pytest.raises(ValidationError):
        DecodeImage(field="x", scale=3)  # type: ignore[arg-type]


def test_crop_is_not_fused_with_a_scale() -> None:
    steps = [(0, DecodeImage(field="x", scale=2)), (1, CenterCrop(field="x", size=(8, 8)))]
    assert fuse_decode_and_crop(steps) == steps  # type: ignore[arg-type]
