"""Tone curves: transforms that replace each value of a picture by another, like Pillow's
`ImageOps`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import tensorflow as tf
from pydantic import Field
from typing_extensions import override

from infeed_augment.photometric import Photometric
from infeed_server.transforms.base import Key

_VALUES = 256

Curves: TypeAlias = "tf.Tensor"
"""The result for each value of each channel: uint8[channels, 256]."""


class Invert(Photometric):
    """Subtracts each value from 255.

    Result: uint8; shape kept.
    """

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        return invert(pixels)


class Solarize(Photometric):
    """Inverts the values at or above a threshold.

    Result: uint8; shape kept.
    """

    threshold: Annotated[int, Field(ge=0, le=256)] = 128
    """Lowest inverted value."""

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        return solarize(pixels, tf.constant(self.threshold))


class Posterize(Photometric):
    """Keeps the upper bits of each value.

    Result: uint8; shape kept.
    """

    bits: Annotated[int, Field(ge=1, le=8)]
    """Number of upper bits to keep."""

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        return posterize(pixels, tf.constant(self.bits))


class Autocontrast(Photometric):
    """Stretches each channel so that its lowest value becomes 0 and its highest 255.

    Result: uint8; shape kept.
    """

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        return autocontrast(pixels)


class Equalize(Photometric):
    """Spreads the values of each channel so that their histogram is nearly flat.

    Result: uint8; shape kept.
    """

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        return equalize(pixels)


def invert(pixels: tf.Tensor) -> tf.Tensor:
    return tf.constant(255, tf.uint8) - pixels


def solarize(pixels: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """Inverts the values at or above an integer threshold, 0 to 256."""
    # By a bit mask, because a choice between two values takes ten times as long.
    kept = tf.cast(tf.clip_by_value(threshold - 1, 0, 255), tf.uint8)
    is_inverted = (pixels > kept) | (threshold < 1)
    return tf.bitwise.bitwise_xor(pixels, tf.cast(is_inverted, tf.uint8) * 255)


def posterize(pixels: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Keeps the upper bits; `bits` is 0 to 8."""
    lost = tf.bitwise.left_shift(1, 8 - bits) - 1
    return tf.bitwise.bitwise_and(pixels, tf.cast(255 - lost, tf.uint8))


def autocontrast(pixels: tf.Tensor) -> tf.Tensor:
    lows = tf.cast(tf.reduce_min(pixels, [0, 1]), tf.float64)
    highs = tf.cast(tf.reduce_max(pixels, [0, 1]), tf.float64)
    scales = tf.where(highs > lows, 255 / tf.maximum(highs - lows, 1), 1)
    offsets = tf.where(highs > lows, -lows * scales, 0)
    # In float64 and in this order, some results are truncated to one less, as in Pillow.
    values = tf.cast(_rows(pixels), tf.float64) * _of_row(pixels, scales) + _of_row(pixels, offsets)
    stretched = tf.cast(tf.clip_by_value(values, 0, 255), tf.uint8)
    return tf.reshape(stretched, tf.shape(pixels))


def equalize(pixels: tf.Tensor) -> tf.Tensor:
    counts = _histograms(pixels)
    is_found = tf.cast(tf.reverse(counts, [1]) > 0, tf.int32)
    last = _VALUES - 1 - tf.argmax(is_found, axis=1)
    of_last = tf.gather(counts, last, batch_dims=1)[:, tf.newaxis]
    steps = (tf.reduce_sum(counts, 1, keepdims=True) - of_last) // 255
    below = tf.cumsum(counts, axis=1, exclusive=True)
    spread = tf.minimum((steps // 2 + below) // tf.maximum(steps, 1), 255)
    return _replace(pixels, tf.cast(tf.where(steps > 0, spread, tf.range(_VALUES)), tf.uint8))


def _histograms(pixels: tf.Tensor) -> tf.Tensor:
    """Returns the number of pixels with each value in each channel: int32[channels, 256]."""
    channels = pixels.shape[2]
    count = channels * _VALUES
    counts = tf.histogram_fixed_width(_numbers(pixels), [0, count - 1], count)
    return tf.reshape(counts, [channels, _VALUES])


def _replace(pixels: tf.Tensor, curves: Curves) -> tf.Tensor:
    replaced = tf.gather(tf.reshape(curves, [-1]), _numbers(pixels))
    return tf.reshape(replaced, tf.shape(pixels))


def _numbers(pixels: tf.Tensor) -> tf.Tensor:
    """Returns values as int32 plus 256 times the number of their channel."""
    of_channels = tf.range(pixels.shape[2]) * _VALUES
    return tf.cast(_rows(pixels), tf.int32) + _of_row(pixels, of_channels)


def _rows(pixels: tf.Tensor) -> tf.Tensor:
    """Returns the rows of a picture, [height, width times channels]."""
    return tf.reshape(pixels, [tf.shape(pixels)[0], -1])


def _of_row(pixels: tf.Tensor, of_channels: tf.Tensor) -> tf.Tensor:
    """Returns a number for each value of a row, from a number for each channel."""
    # Broadcasting over rows, because over pixels it takes several times as long.
    return tf.tile(of_channels, [tf.shape(pixels)[1]])
