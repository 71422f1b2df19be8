"""From bytes to pixels and numbers."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import tensorflow as tf
from typing_extensions import override

from infeed_server.transforms.base import FieldTransform, Key
from infeed_server.transforms.checks import require_at_run_time, require_bytes
from infeed_server.transforms.options import NumberType, Shape

# tf.io.decode_raw knows no unsigned type of these widths: the signed one has the same bits.
_SAME_BITS = {"uint32": tf.int32, "uint64": tf.int64}


class DecodeImage(FieldTransform):
    """An encoded JPEG, PNG, GIF (its first frame) or BMP → uint8 [height, width, channels].

    `channels` as in `tf.io.decode_image`: 1 greyscale, 3 RGB, 4 RGBA (a file without alpha
    becomes opaque), 0 what the file has, which may vary from sample to sample.
    """

    name: ClassVar[str] = "decode_image"

    channels: Literal[0, 1, 3, 4] = 3

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        instead = "an image is decoded once"
        contents = require_bytes(x, self.field, self.name, instead=instead)
        if self.channels == 4:
            return _with_alpha(contents)
        return decode(contents, self.channels)


class DecodeRaw(FieldTransform):
    """The bytes of little-endian numbers → an array of `dtype` and `shape`.

    A sample with another number of bytes fails.
    """

    name: ClassVar[str] = "decode_raw"

    dtype: NumberType = "uint8"
    shape: Shape

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        contents = require_bytes(x, self.field, self.name, instead="it is decoded already")
        dtype = tf.as_dtype(self.dtype)
        length = tf.strings.length(contents)
        expected = math.prod(self.shape) * dtype.size
        told = (
            f"{self.name}: field {self.field} must have {expected} bytes for "
            f"{self.dtype}{list(self.shape)}; it has"
        )
        with tf.control_dependencies(require_at_run_time(length == expected, told, length)):
            flat = tf.io.decode_raw(contents, _SAME_BITS.get(self.dtype, dtype))
        return tf.reshape(tf.bitcast(flat, dtype) if self.dtype in _SAME_BITS else flat, self.shape)


def decode(contents: tf.Tensor, channels: int) -> tf.Tensor:
    """uint8 [height, width, channels] of an encoded image."""
    pixels = tf.io.decode_image(contents, channels=channels, expand_animations=False)
    return tf.ensure_shape(pixels, [None, None, channels or None])


def _with_alpha(contents: tf.Tensor) -> tf.Tensor:
    # A JPEG has no alpha, and TensorFlow refuses to decode it to 4 channels.
    def opaque() -> tf.Tensor:
        pixels = tf.io.decode_jpeg(contents, channels=3)
        return tf.pad(pixels, [[0, 0], [0, 0], [0, 1]], constant_values=255)

    pixels = tf.cond(tf.io.is_jpeg(contents), opaque, lambda: decode(contents, 4))
    return tf.ensure_shape(pixels, [None, None, 4])
