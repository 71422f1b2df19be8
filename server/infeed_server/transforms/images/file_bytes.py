"""Access to the bytes of a file inside a graph. What lies behind the file's end reads as zeros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def first_bytes(contents: tf.Tensor, count: int) -> tf.Tensor:
    """Returns the first `count` bytes of the file, uint8."""
    return tf.io.decode_raw(tf.strings.substr(contents, 0, count), tf.uint8, fixed_length=count)


def read_bytes(contents: tf.Tensor, begin: tf.Tensor, count: tf.Tensor | int) -> tf.Tensor:
    """Returns `count` bytes of the file from `begin`, uint8."""
    begin = tf.minimum(begin, tf.strings.length(contents))
    part = tf.strings.substr(contents, begin, count)
    return tf.io.decode_raw(part, tf.uint8, fixed_length=count)


def numbers(
    data: tf.Tensor, places: Sequence[tuple[int, int]], *, big_endian: tf.Tensor | bool = False
) -> tf.Tensor:
    """Returns unsigned numbers of the last dimension, int64, one for each (begin, size in bytes).

    All of them with one product, since a graph of many small operations takes long to build.
    """
    length = max(begin + size for begin, size in places)
    ascending = np.zeros((len(places), length), np.int64)
    descending = np.zeros_like(ascending)
    for row, (begin, size) in enumerate(places):
        ascending[row, begin : begin + size] = 256 ** np.arange(size)
        descending[row, begin : begin + size] = 256 ** np.arange(size)[::-1]
    if isinstance(big_endian, bool):
        weights = descending if big_endian else ascending
    else:
        weights = tf.where(big_endian, descending, ascending)
    values = tf.cast(data[..., tf.newaxis, :length], tf.int64)
    return tf.reduce_sum(values * weights, axis=-1)
