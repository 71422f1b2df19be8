"""Resizing."""

from __future__ import annotations

from typing import ClassVar, Literal

import tensorflow as tf
from typing_extensions import override

from infeed_server.transforms.base import FieldTransform, Key
from infeed_server.transforms.checks import require_image
from infeed_server.transforms.options import Size

Method = Literal[
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "mitchellcubic", "gaussian"
]


_MEANS: frozenset[Method] = frozenset({"bilinear", "area", "gaussian"})
"""Methods whose results are weighted means of pixels, so that none leaves the pixels' range."""

_SMALL = (tf.uint8, tf.int8)
"""Types so narrow that float32's own errors in such a mean never reach half a step."""


class Resize(FieldTransform):
    """`tf.image.resize` to `size` [height, width].

    `tf.image.resize` gives float32. Here the field keeps its data type, so that uint8 travels as
    uint8: values are rounded to the nearest integer (halves to even) and cut to the type's range.
    With `dtype: float32` they stay as `tf.image.resize` returns them.
    """

    name: ClassVar[str] = "resize"

    size: Size
    method: Method = "bilinear"
    antialias: bool = False
    dtype: Literal["float32"] | None = None

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        pixels = require_image(x, self.field, self.name)
        if self.dtype is None:
            return resize(pixels, self.size, self.method, antialias=self.antialias)
        resized = tf.image.resize(pixels, self.size, self.method, antialias=self.antialias)
        # `nearest`, and a size that changes nothing, leave the type as it was.
        return tf.cast(resized, tf.float32)


def resize(
    pixels: tf.Tensor, size: tuple[int, int], method: Method, *, antialias: bool = False
) -> tf.Tensor:
    """The image in another size and the same data type."""
    resized = tf.image.resize(pixels, size, method, antialias=antialias)
    if resized.dtype == pixels.dtype:
        return resized
    if pixels.dtype in _SMALL and method in _MEANS:
        # There is nothing to cut, and to look for it takes a pass over all pixels.
        return tf.cast(tf.round(resized), pixels.dtype)
    if pixels.dtype.is_integer:
        return tf.saturate_cast(tf.round(resized), pixels.dtype)
    return tf.cast(resized, pixels.dtype)
