"""Decoding: images as TensorFlow decodes them, raw numbers, and errors.

Unusual images are in images/.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.pictures import encode

from infeed.shared.spec import numpy_dtype
from infeed_server.transforms import DecodeImage, DecodeRaw

BYTES = tf.TensorSpec([], tf.string)


def decode_each(run_each: Any, step: DecodeImage, contents: list[bytes]) -> list[Any]:
    samples = {"image": np.array(contents, object)}
    return [item["image"] for item in run_each(step, samples, [(0, 0)] * len(contents))]


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_jpeg_equals_tensorflow(run_each: Any, jpegs: list[bytes], channels: int) -> None:
    step = DecodeImage(field="image", channels=channels)
    for contents, result in zip(jpegs, decode_each(run_each, step, jpegs), strict=True):
        expected = tf.io.decode_image(contents, channels=channels, expand_animations=False)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("channels", "static"), [(0, None), (1, 1), (3, 3), (4, 4)])
def test_channels_are_static(spec: Any, channels: int, static: int | None) -> None:
    after = spec(DecodeImage(field="image", channels=channels), {"image": BYTES})
    assert after["image"] == tf.TensorSpec([None, None, static], tf.uint8)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "BMP", "GIF", "WEBP"])
def test_image_over_max_pixels_fails_the_sample(
    run_eagerly: Any, image: Any, image_format: str
) -> None:
    contents = encode(image_format, image)
    allowed = DecodeImage(field="image", max_pixels=40 * 50)
    assert run_eagerly(allowed, {"image": contents})["image"].shape == (40, 50, 3)
    refused = DecodeImage(field="image", max_pixels=40 * 50 - 1)
    message = r"decode_image: field image must have at most 1999 pixels \(max_pixels\); it has"
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?s){message}.*2000"):
        run_eagerly(refused, {"image": contents})


def bombs() -> dict[str, bytes]:
    """Short files whose headers state an image of 30,000 x 30,000 pixels, or more."""
    size = struct.pack(">I", 30_000)
    jpeg = bytearray(encode("JPEG", np.zeros((8, 8, 3), "u1")))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = struct.pack(">HH", 30_000, 30_000)
    png = bytearray(encode("PNG", np.zeros((8, 8, 3), "u1")))
    png[16:24] = size * 2
    png[29:33] = struct.pack(">I", zlib.crc32(png[12:29]))
    bmp = bytearray(encode("BMP", np.zeros((8, 8, 3), "u1")))
    bmp[18:26] = struct.pack("<ii", 30_000, -30_000)
    gif = bytearray(encode("GIF", np.zeros((8, 8, 3), "u1")))
    gif[6:10] = struct.pack("<HH", 30_000, 30_000)
    huge = bytearray(png)
    huge[16:24] = b"\x7f\xff\xff\xff" * 2
    lossless = bytearray(encode("WEBP", np.zeros((8, 8, 3), "u1"), lossless=True))
    lossless[21:25] = struct.pack("<I", 16_000 << 14 | 16_000)
    lossy = bytearray(encode("WEBP", np.zeros((8, 8, 3), "u1")))
    lossy[26:30] = struct.pack("<HH", 16_000, 16_000)
    extended = bytearray(encode("WEBP", np.zeros((8, 8, 4), "u1")))
    extended[24:30] = b"\xff\xff\0" * 2
    named = {"jpeg": jpeg, "png": png, "bmp": bmp, "gif": gif}
    return {**named, "huge": huge, "lossless": lossless, "lossy": lossy, "extended": extended}


def test_png_with_another_chunk_before_its_size_is_refused(run_eagerly: Any) -> None:
    png = encode("PNG", np.zeros((8, 8, 3), "u1"))
    chunk = b"prVt" + bytes(16)
    length, crc = struct.pack(">I", 16), struct.pack(">I", zlib.crc32(chunk))
    contents = png[:8] + length + chunk + crc + png[8:]
    assert tf.io.decode_image(contents).shape == (8, 8, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must begin with its size"):
        run_eagerly(DecodeImage(field="image"), {"image": contents})


@pytest.mark.parametrize("kind", bombs())
def test_bomb_is_refused_by_its_header(run_eagerly: Any, kind: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 67108864 pixels"):
        run_eagerly(DecodeImage(field="image"), {"image": bytes(bombs()[kind])})


@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "bfloat16"),
    ],
)
def test_decode_raw(run: Any, spec: Any, dtype: Any) -> None:
    values = np.random.default_rng(1).integers(0, 256, 24).reshape(2, 3, 4)
    values = values.astype(numpy_dtype(dtype))
    transform = DecodeRaw(field="x", dtype=dtype, shape=(2, 3, 4))
    np.testing.assert_array_equal(run(transform, {"x": values.tobytes()})["x"], values)
    assert spec(transform, {"x": BYTES})["x"] == tf.TensorSpec([2, 3, 4], tf.as_dtype(dtype))


@pytest.mark.parametrize("length", [0, 23, 25, 47])
def test_decode_raw_of_wrong_length_fails_the_sample(run: Any, key: Any, length: int) -> None:
    transform = DecodeRaw(field="x", dtype="float16", shape=(3, 4))
    message = r"decode_raw: field x must have 24 bytes for float16\[3, 4\]; it has"
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){message}.*{length}"):
        run(transform, {"x": bytes(length)})
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{message} {length}"):
        transform.apply({"x": tf.constant(bytes(length))}, key)
