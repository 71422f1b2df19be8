"""Orientation of a stored image, as the EXIF tag of this name defines it: 1 is upright."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_FLIPS = np.array(
    [
        *((False, False), (False, True), (True, True), (True, False)),
        *((False, False), (True, False), (True, True), (False, True)),
    ]
)
"""Whether the rows and the columns of the stored image are reversed, by orientation from 1. From 5
on, the result is then transposed."""


def orient(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turns a stored image, or a part of it, upright."""

    def turn() -> tf.Tensor:
        flips = tf.concat([tf.gather(_FLIPS, orientation - 1), [False]], 0)
        flipped = tf.raw_ops.Reverse(tensor=pixels, dims=flips)
        return tf.transpose(flipped, tf.where(_is_transposed(orientation), [1, 0, 2], [0, 1, 2]))

    turned = tf.cond(orientation == 1, lambda: pixels, turn)
    return tf.ensure_shape(turned, [None, None, pixels.shape[2]])


def oriented_size(size: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns [height, width] of the upright image, from the stored image's."""
    return tf.where(_is_transposed(orientation), size[::-1], size)


def stored_window(window: tf.Tensor, size: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns the window of the stored image, of `size`, that shows a window of the upright one.

    Windows are y, x, height, width.
    """
    is_transposed = _is_transposed(orientation)
    begin, extent = (tf.where(is_transposed, pair[::-1], pair) for pair in (window[:2], window[2:]))
    flips = tf.gather(_FLIPS, orientation - 1)
    return tf.concat([tf.where(flips, size - begin - extent, begin), extent], 0)


def _is_transposed(orientation: tf.Tensor) -> tf.Tensor:
    return orientation >= 5
