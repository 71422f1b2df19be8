"""Photometric transforms: the base class of transforms that change the colours of uint8 pixels and
leave each pixel in its place."""

from __future__ import annotations

import tensorflow as tf
from typing_extensions import override

from infeed_server.transforms.base import FieldTransform, Key, describe_tensor, require_image

CHANNELS = (1, 3)
"""Channels of a grey and of an RGB picture."""


class Photometric(FieldTransform):
    """A transform of a uint8 picture, grey or RGB. A subclass implements `change`."""

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        pixels = require_uint8(x, self)
        return tf.ensure_shape(self.change(pixels, key), pixels.shape)

    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        """Returns the pixels with other colours."""
        raise NotImplementedError(type(self).__name__)


def require_uint8(x: tf.Tensor, step: FieldTransform) -> tf.Tensor:
    """Returns the field as a grey or RGB picture of uint8. Raises `ConfigError`."""
    pixels = require_image(x, step, ["uint8"])
    if pixels.shape[2] not in CHANNELS:
        raise step.error(
            f"field {step.field!r} holds {describe_tensor(pixels)}; 1 or 3 channels are required "
            "(decode_image with channels: 3)"
        )
    return pixels


def to_grey(pixels: tf.Tensor) -> tf.Tensor:
    """Returns one channel, int32, like Pillow's mode L: 0.299 R + 0.587 G + 0.114 B, rounded."""
    if pixels.shape[2] == 1:
        return tf.cast(pixels, tf.int32)
    red, green, blue = (tf.cast(channel, tf.int32) for channel in tf.unstack(pixels, axis=2))
    luma = tf.bitwise.right_shift(19595 * red + 38470 * green + 7471 * blue + (1 << 15), 16)
    return luma[..., tf.newaxis]


def blend(base: tf.Tensor, pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Returns `base` at factor 0, the pixels at 1, and values on the line through both at other
    factors, truncated like Pillow's `Image.blend`."""
    start = tf.cast(base, tf.float32)
    line = start + factor * (tf.cast(pixels, tf.float32) - start)
    return tf.cast(tf.clip_by_value(line, 0.0, 255.0), tf.uint8)
