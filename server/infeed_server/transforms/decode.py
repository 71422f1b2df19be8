"""Decoding of bytes into pixels and numbers."""

from __future__ import annotations

import math
from typing import Literal

import tensorflow as tf
from typing_extensions import override

from infeed_server.transforms.base import FieldTransform, Key
from infeed_server.transforms.field_checks import require_at_run_time, require_bytes
from infeed_server.transforms.images.decoding import Decoding
from infeed_server.transforms.images.formats import decode
from infeed_server.transforms.option_types import NumberType, Positive, Shape

# tf.io.decode_raw has no unsigned types of these widths; the signed ones have the same bits.
_SIGNED_TYPES = {"uint32": "int32", "uint64": "int64"}


class DecodeImage(FieldTransform):
    """Decodes an image file: JPEG, PNG, BMP, WebP or the first frame of a GIF.

    Result: bytes → `dtype`; `[height, width, channels]` of the upright image.
    """

    channels: Literal[0, 1, 3, 4] = 3
    """1 is greyscale, 3 RGB, 4 RGBA (a file without alpha becomes opaque), 0 as in the file, which
    may vary from sample to sample."""
    exif: Literal["apply", "ignore"] = "ignore"
    """Whether a JPEG is turned upright as its EXIF orientation states."""
    dtype: Literal["uint8", "uint16"] = "uint8"
    """Type of the pixels: `uint16` keeps all bits of a PNG of 16, of which `uint8` has the high
    ones."""
    max_pixels: Positive = 1 << 26
    """Largest image, height times width: an image whose header states more is a bad sample, and no
    memory is taken for it."""

    @property
    def decoding(self) -> Decoding:
        return Decoding(
            subject=f"{self.name}: field {self.field}",
            channels=self.channels,
            dtype=self.dtype,
            max_pixels=self.max_pixels,
            oriented=self.exif == "apply",
        )

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        contents = require_bytes(x, self, instead="an image is decoded once")
        return decode(contents, self.decoding)


class DecodeRaw(FieldTransform):
    """Decodes bytes of little-endian numbers, exactly as many as `shape` has.

    Result: bytes → `dtype`; `shape`.
    """

    dtype: NumberType = "uint8"
    """Type of the numbers."""
    shape: Shape
    """Shape of the array; `[]` for a scalar."""

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        contents = require_bytes(x, self, instead="it is decoded already")
        dtype = tf.as_dtype(self.dtype)
        length = tf.strings.length(contents)
        expected = math.prod(self.shape) * dtype.size
        message = (
            f"{self.name}: field {self.field} must have {expected} bytes for "
            f"{self.dtype}{list(self.shape)}; it has"
        )
        fits = require_at_run_time(length == expected, message, length)
        with tf.control_dependencies(fits):
            flat = tf.io.decode_raw(contents, tf.as_dtype(_SIGNED_TYPES.get(self.dtype, dtype)))
        if self.dtype in _SIGNED_TYPES:
            flat = tf.bitcast(flat, dtype)
        return tf.reshape(flat, self.shape)
