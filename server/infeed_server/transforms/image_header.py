"""The size of an encoded image, from its header alone."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_HEADER_BYTES = 26
"""Bytes at the start of a file that contain the size of a PNG, GIF or BMP."""

_FORMATS = (
    (b"\x89", (16, 17, 18, 19), (20, 21, 22, 23)),  # PNG
    (b"G", (7, 6), (9, 8)),  # GIF: its canvas
    (b"B", (21, 20, 19, 18), (25, 24, 23, 22)),  # BMP
)
"""First byte, places of the bytes of the width, the highest first, and of the height."""


def pixel_count(contents: tf.Tensor) -> tf.Tensor:
    """Returns height times width, int64, as the header of a JPEG, PNG, GIF or BMP states them.

    0 for other content, which no decoder accepts. Of a GIF, the size is that of its canvas.
    """
    return tf.cond(
        tf.io.is_jpeg(contents),
        lambda: jpeg_pixel_count(tf.io.extract_jpeg_shape(contents)),
        lambda: other_pixel_count(contents),
    )


def jpeg_pixel_count(shape: tf.Tensor) -> tf.Tensor:
    """Returns height times width, int64, of the shape that `extract_jpeg_shape` returns."""
    return tf.reduce_prod(tf.cast(shape[:2], tf.int64))


def other_pixel_count(contents: tf.Tensor) -> tf.Tensor:
    """Returns height times width, int64, of a PNG, GIF or BMP."""
    start = tf.strings.substr(contents, 0, _HEADER_BYTES)
    header = tf.cast(tf.io.decode_raw(start, tf.uint8, fixed_length=_HEADER_BYTES), tf.int64)
    sizes = tf.reduce_sum(header * _weights(), axis=2)
    # The height of a BMP is negative if its first row is the top one.
    counts = tf.reduce_prod(tf.minimum(sizes, (1 << 32) - sizes), axis=1)
    is_format = header[0] == [ord(first) for first, _, _ in _FORMATS]
    return tf.reduce_sum(tf.where(is_format, counts, tf.zeros_like(counts)))


def _weights() -> np.ndarray[tuple[int, int, int], np.dtype[np.int64]]:
    """Returns the weights of the header's bytes in width and height of each format."""
    weights = np.zeros((len(_FORMATS), 2, _HEADER_BYTES), np.int64)
    for row, (_, *sizes) in zip(weights, _FORMATS, strict=True):
        for size, places in zip(row, sizes, strict=True):
            size[list(places)] = 256 ** np.arange(len(places))[::-1]
    return weights
