"""Sizes of encoded images, from their headers."""

from __future__ import annotations

import tensorflow as tf

from infeed_server.transforms.images.formats import decode_traced
from infeed_server.transforms.images.graph import Decoding, begins_with, first_bytes, numbers
from infeed_server.transforms.images.orientation import (
    jpeg_orientation,
    may_have_exif,
    oriented_size,
)

_PNG_SIZE = ((20, 4), (16, 4))
"""Places and sizes of a PNG's height and width."""


def decoded_size(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Returns the height and width, int32[2], that `decode` gives an image. It decodes only a GIF,
    BMP or WebP."""

    def of_jpeg() -> tf.Tensor:
        size = tf.io.extract_jpeg_shape(contents)[:2]
        if not decoding.oriented:
            return size
        upright = lambda: oriented_size(size, jpeg_orientation(contents))  # noqa: E731
        return tf.cond(may_have_exif(contents), upright, lambda: size)

    def of_png() -> tf.Tensor:
        header = first_bytes(contents, 24)
        return tf.cast(numbers(header, _PNG_SIZE, big_endian=True), tf.int32)

    is_png = begins_with(first_bytes(contents, 4), b"\x89PNG")
    index = tf.where(tf.io.is_jpeg(contents), 0, tf.where(is_png, 1, 2))
    scale = decoding.scale
    small = [lambda: -(-of_jpeg() // scale), lambda: -(-of_png() // scale)]
    other = lambda: tf.shape(decode_traced(contents, decoding))[:2]  # noqa: E731
    return tf.ensure_shape(tf.switch_case(index, [*small, other]), [2])
