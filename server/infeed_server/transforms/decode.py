"""Decoding of bytes into pixels and numbers."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import tensorflow as tf
from typing_extensions import override

from infeed_server.transforms.base import FieldTransform, Key
from infeed_server.transforms.field_checks import require_at_run_time, require_bytes
from infeed_server.transforms.image_header import pixel_count
from infeed_server.transforms.option_types import NumberType, Positive, Shape

# tf.io.decode_raw has no unsigned types of these widths; the signed ones have the same bits.
_SIGNED_TYPES = {"uint32": tf.int32, "uint64": tf.int64}


class DecodeImage(FieldTransform):
    """Decodes JPEG, PNG, BMP or the first frame of a GIF to `[height, width, channels]`.

    Result: bytes → uint8; size of the file.
    """

    name: ClassVar[str] = "decode_image"

    channels: Literal[0, 1, 3, 4] = 3
    """1 is greyscale, 3 RGB, 4 RGBA (a file without alpha becomes opaque), 0 as in the file, which
    may vary from sample to sample."""
    max_pixels: Positive = 1 << 26
    """Largest image, height times width: an image whose header states more is a bad sample, and no
    memory is taken for it."""

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        contents = require_bytes(x, self.field, self.name, instead="an image is decoded once")
        with tf.control_dependencies(self.require_pixels(pixel_count(contents))):
            if self.channels == 4:
                return _decode_rgba(contents)
            return decode_image(contents, self.channels)

    def require_pixels(self, count: tf.Tensor) -> list[tf.Operation]:
        """Fails the sample if it has more pixels than allowed. Returns control dependencies."""
        message = (
            f"{self.name}: field {self.field} must have at most {self.max_pixels} pixels "
            "(max_pixels); it has"
        )
        return require_at_run_time(count <= self.max_pixels, message, count)


class DecodeRaw(FieldTransform):
    """Decodes bytes of little-endian numbers, exactly as many as `shape` has.

    Result: bytes → `dtype`; `shape`.
    """

    name: ClassVar[str] = "decode_raw"

    dtype: NumberType = "uint8"
    """Type of the numbers."""
    shape: Shape
    """Shape of the array; `[]` for a scalar."""

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        contents = require_bytes(x, self.field, self.name, instead="it is decoded already")
        dtype = tf.as_dtype(self.dtype)
        length = tf.strings.length(contents)
        expected = math.prod(self.shape) * dtype.size
        message = (
            f"{self.name}: field {self.field} must have {expected} bytes for "
            f"{self.dtype}{list(self.shape)}; it has"
        )
        fits = require_at_run_time(length == expected, message, length)
        with tf.control_dependencies(fits):
            flat = tf.io.decode_raw(contents, _SIGNED_TYPES.get(self.dtype, dtype))
        if self.dtype in _SIGNED_TYPES:
            flat = tf.bitcast(flat, dtype)
        return tf.reshape(flat, self.shape)


def decode_image(contents: tf.Tensor, channels: int) -> tf.Tensor:
    """Decodes an image to uint8 [height, width, channels]."""
    pixels = tf.io.decode_image(contents, channels=channels, expand_animations=False)
    return tf.ensure_shape(pixels, [None, None, channels or None])


def _decode_rgba(contents: tf.Tensor) -> tf.Tensor:
    # A JPEG has no alpha channel, and TensorFlow refuses to decode it to 4 channels.
    def decode_opaque() -> tf.Tensor:
        pixels = tf.io.decode_jpeg(contents, channels=3)
        return tf.pad(pixels, [[0, 0], [0, 0], [0, 1]], constant_values=255)

    pixels = tf.cond(tf.io.is_jpeg(contents), decode_opaque, lambda: decode_image(contents, 4))
    return tf.ensure_shape(pixels, [None, None, 4])
