"""JPEGs of all colour spaces, against Pillow's pixels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.harness import pictures

from infeed_server.transforms import DecodeImage

SMALL = np.random.default_rng(4).integers(0, 256, (6, 8, 3), np.uint8)
SMOOTH = Image.fromarray(SMALL).resize((90, 70), Image.Resampling.BICUBIC)

MAX_DIFFERENCE = 20
MAX_MEAN_DIFFERENCE = 2
"""Between two decoders: TensorFlow's inverse transform is the faster, less exact one."""


def with_transform(jpeg: bytes, transform: int) -> bytes:
    """Returns the JPEG with another colour transform in Adobe's segment: 2 is YCCK."""
    place = jpeg.index(b"Adobe") + 11
    return jpeg[:place] + bytes([transform]) + jpeg[place + 1 :]


def without_adobe(jpeg: bytes) -> bytes:
    place = jpeg.index(b"\xff\xee")
    return jpeg[:place] + jpeg[place + 16 :]


CMYK = pictures.encode("JPEG", SMOOTH.convert("CMYK"), quality=95)
JPEGS = {
    "grey": pictures.encode("JPEG", SMOOTH.convert("L")),
    "RGB": pictures.encode("JPEG", SMOOTH, quality=95),
    "RGB, 4:4:4": pictures.encode("JPEG", SMOOTH, subsampling=0),
    "progressive": pictures.encode("JPEG", SMOOTH, progressive=True),
    "RGB without transform": pictures.encode("JPEG", SMOOTH, keep_rgb=True),
    "CMYK": CMYK,
    "CMYK progressive": pictures.encode("JPEG", SMOOTH.convert("CMYK"), progressive=True),
    "YCCK": with_transform(CMYK, 2),
}


def with_pillow(contents: bytes, channels: int) -> Any:
    image = Image.open(io.BytesIO(contents))
    if channels == 0:
        channels = 1 if image.mode == "L" else 3
    pixels = np.asarray(image.convert("RGB").convert({1: "L", 3: "RGB", 4: "RGBA"}[channels]))
    return pixels.reshape(*pixels.shape[:2], channels)


def decode_each(run_each: Any, files: list[bytes], channels: int) -> list[Any]:
    contents = np.array(files, object)
    step = DecodeImage(field="x", channels=channels)  # type: ignore[arg-type]
    return [item["x"] for item in run_each(step, {"x": contents}, [(0, 0)] * len(files))]


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_pixels_are_nearly_those_of_pillow(run_each: Any, channels: int) -> None:
    differences = {}
    results = decode_each(run_each, list(JPEGS.values()), channels)
    for (name, contents), result in zip(JPEGS.items(), results, strict=True):
        expected = with_pillow(contents, channels)
        assert result.shape == expected.shape
        differences[name] = np.abs(result.astype(int) - expected)
    assert {
        name: item.max() for name, item in differences.items() if item.max() > MAX_DIFFERENCE
    } == {}
    means = {name: item.mean() for name, item in differences.items()}
    assert max(means.values()) < MAX_MEAN_DIFFERENCE, means


def test_cmyk_to_grey_is_luma_of_rgb(run_each: Any) -> None:
    files = [JPEGS["CMYK"], JPEGS["YCCK"]]
    grey, rgb = (decode_each(run_each, files, channels) for channels in (1, 3))
    for grey_pixels, rgb_pixels in zip(grey, rgb, strict=True):
        expected = np.asarray(Image.fromarray(rgb_pixels).convert("L"))
        np.testing.assert_array_equal(grey_pixels[..., 0], expected)


def test_cmyk_without_adobes_segment_is_not_inverted(run_each: Any) -> None:
    contents = without_adobe(CMYK)
    # Pillow takes every CMYK JPEG as inverted.
    ink = 255 - np.asarray(Image.open(io.BytesIO(contents))).astype(int)
    expected = (255 - ink[..., :3]) * (255 - ink[..., 3:]) // 255
    (result,) = decode_each(run_each, [contents], 3)
    assert np.abs(result - expected).max() <= MAX_DIFFERENCE
