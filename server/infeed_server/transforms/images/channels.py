"""Conversion of RGB and RGBA pixels to other channels, and to the type of the result."""

from __future__ import annotations

import tensorflow as tf

_LUMA = (19595, 38470, 7471)
"""Weights of red, green and blue in the luma of ITU-R BT.601, times 65536, as libjpeg and Pillow
have them."""


def to_channels(pixels: tf.Tensor, channels: int) -> tf.Tensor:
    """Converts RGB or RGBA, the last dimension, to `channels` channels; 0 keeps the file's.

    Alpha is dropped, or opaque where there was none.
    """
    if channels == 1:
        return luma(pixels)
    if channels == 3:
        return pixels[..., :3]
    # An opaque channel is appended to both, and is the fifth of RGBA.
    return with_opaque(pixels)[..., :4] if channels == 4 else pixels


def with_opaque(pixels: tf.Tensor) -> tf.Tensor:
    """Appends a channel of the type's largest value."""
    paddings = [[0, 0]] * (pixels.shape.rank - 1) + [[0, 1]]
    return tf.pad(pixels, paddings, constant_values=pixels.dtype.max)


def luma(pixels: tf.Tensor) -> tf.Tensor:
    """Converts RGB or RGBA to grey, rounded to the nearest integer (halves up)."""
    # Every product and sum is exact: sums of uint8 have 24 bits.
    exact = tf.float32 if pixels.dtype == tf.uint8 else tf.float64
    colours = tf.unstack(tf.cast(pixels[..., :3], exact), 3, axis=-1)
    terms = (colour * (weight / 65536) for colour, weight in zip(colours, _LUMA, strict=True))
    return tf.cast(sum(terms, start=0.5), pixels.dtype)[..., tf.newaxis]


def to_dtype(pixels: tf.Tensor, dtype: str) -> tf.Tensor:
    """Converts uint8 pixels as TensorFlow's decoder does: times 256 for uint16."""
    return pixels if dtype == "uint8" else tf.cast(pixels, tf.uint16) * 256
