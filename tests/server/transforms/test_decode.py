from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from pydantic import ValidationError

from infeed.errors import ConfigError
from infeed_server.transforms import DecodeImage, DecodeRaw

BYTES = tf.TensorSpec([], tf.string)


def encoded(form: str, pixels: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form)
    return out.getvalue()


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_jpegs_decode_as_tensorflow_decodes_them(
    run: Any, jpegs: list[bytes], channels: int
) -> None:
    for contents in jpegs:
        result = run(DecodeImage(field="image", channels=channels), {"image": contents})["image"]
        expected = tf.io.decode_image(contents, channels=channels, expand_animations=False)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", ["PNG", "BMP", "GIF"])
def test_other_formats(run: Any, image: Any, form: str) -> None:
    contents = encoded(form, image)
    result = run(DecodeImage(field="image"), {"image": contents})["image"]
    expected = tf.io.decode_image(contents, channels=3, expand_animations=False)
    np.testing.assert_array_equal(result, expected)
    if form != "GIF":  # a GIF has 256 colours
        np.testing.assert_array_equal(result, image)


@pytest.mark.parametrize("source_channels", [1, 3, 4])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pngs_come_with_the_channels_asked_for(
    run: Any, image: Any, source_channels: int, channels: int
) -> None:
    pixels = np.concatenate([image, image[..., :1]], -1)[..., :source_channels]
    contents = tf.io.encode_png(pixels).numpy()
    result = run(DecodeImage(field="image", channels=channels), {"image": contents})["image"]
    np.testing.assert_array_equal(result, tf.io.decode_png(contents, channels=channels))


def test_a_jpeg_as_rgba_is_opaque(run: Any, jpegs: list[bytes]) -> None:
    for contents in jpegs:
        result = run(DecodeImage(field="image", channels=4), {"image": contents})["image"]
        np.testing.assert_array_equal(result[..., :3], tf.io.decode_jpeg(contents, channels=3))
        assert (result[..., 3] == 255).all()


@pytest.mark.parametrize(("channels", "static"), [(0, None), (1, 1), (3, 3), (4, 4)])
def test_the_channels_are_static(spec: Any, channels: int, static: int | None) -> None:
    after = spec(DecodeImage(field="image", channels=channels), {"image": BYTES})
    assert after["image"] == tf.TensorSpec([None, None, static], tf.uint8)


def test_decoding_what_is_no_image_fails_the_sample(run: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
        run(DecodeImage(field="image"), {"image": b"not an image at all"})


def test_decoding_twice_is_refused(spec: Any, image: Any) -> None:
    with pytest.raises(ConfigError, match=r"decode_image: field 'image' holds uint8\[40, 50, 3\]"):
        spec(DecodeImage(field="image"), {"image": tf.TensorSpec(image.shape, tf.uint8)})


def test_a_list_of_byte_strings_is_refused(spec: Any) -> None:
    with pytest.raises(ConfigError, match=r"holds bytes\[2\], not one byte string"):
        spec(DecodeImage(field="image"), {"image": tf.TensorSpec([2], tf.string)})


def test_a_missing_field_is_told_with_those_there_are(spec: Any) -> None:
    with pytest.raises(ConfigError, match="no field 'img'; available: image, label"):
        spec(DecodeImage(field="img"), {"image": BYTES, "label": BYTES})


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ],
)
def test_raw_numbers(run: Any, spec: Any, dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 256, 24).astype(dtype).reshape(2, 3, 4)
    transform = DecodeRaw(field="x", dtype=dtype, shape=(2, 3, 4))
    np.testing.assert_array_equal(run(transform, {"x": values.tobytes()})["x"], values)
    assert spec(transform, {"x": BYTES})["x"] == tf.TensorSpec([2, 3, 4], tf.as_dtype(dtype))


def test_raw_bfloat16(run: Any) -> None:
    values = tf.cast(tf.range(6), tf.bfloat16).numpy()
    result = run(DecodeRaw(field="x", dtype="bfloat16", shape=(6,)), {"x": values.tobytes()})
    np.testing.assert_array_equal(result["x"], values)


def test_a_raw_scalar(run: Any) -> None:
    result = run(DecodeRaw(field="x", dtype="int16", shape=()), {"x": b"\x01\x02"})["x"]
    assert result == 0x0201


@pytest.mark.parametrize("length", [0, 23, 25, 47])
def test_a_wrong_length_names_the_sizes(run: Any, key: Any, length: int) -> None:
    transform = DecodeRaw(field="x", dtype="float16", shape=(3, 4))
    told = r"decode_raw: field x must have 24 bytes for float16\[3, 4\]; it has"
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){told}.*{length}"):
        run(transform, {"x": bytes(length)})
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{told} {length}"):
        transform.apply({"x": tf.constant(bytes(length))}, key)


def test_options_are_checked() -> None:
    with pytest.raises(ValidationError):
        DecodeImage(field="x", channels=2)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        DecodeRaw(field="x", dtype="bytes", shape=(1,))  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        DecodeRaw(field="x", shape=(0,))
