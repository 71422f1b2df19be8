"""PNG: decoding with all bits, also to the channels that TensorFlow converts wrongly."""

from __future__ import annotations

from functools import partial

import tensorflow as tf

from infeed_server.transforms.images.channels import luma, to_channels
from infeed_server.transforms.images.decoding import Decoding
from infeed_server.transforms.images.file_bytes import first_bytes, numbers

_HEADER_BYTES = 26
_COLOUR_BIT = 2
"""Of the colour type: neither grey nor grey with alpha."""
_PALETTE = 3
"""Colour type."""


def decode_png(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a PNG to [height, width, channels]."""
    header = first_bytes(contents, _HEADER_BYTES)
    width, height = tf.unstack(numbers(header, ((16, 4), (20, 4)), big_endian=True))
    bit_depth, colour_type = header[24], header[25]
    decode = partial(tf.io.decode_png, contents, dtype=tf.as_dtype(decoding.dtype))
    # The decoder accepts a PNG with another chunk before the one that has its size.
    has_size = tf.reduce_all(header[12:16] == list(b"IHDR"))
    problem = "must begin with its size, a chunk IHDR; the bytes of its first chunk's name are"
    checks = decoding.require(has_size, problem, header[12:16])
    with tf.control_dependencies([*checks, *decoding.require_pixels(height, width)]):
        if decoding.channels == 1:
            # libpng would convert in linear light if the file states its gamma, unlike any other
            # decoder.
            is_grey = tf.bitwise.bitwise_and(colour_type, _COLOUR_BIT) == 0
            return tf.cond(is_grey, lambda: decode(channels=1), lambda: luma(decode(channels=3)))
        if decoding.channels == 4:
            return tf.cond(
                bit_depth < 8,
                lambda: tf.cond(
                    colour_type == _PALETTE,
                    lambda: to_channels(decode(channels=0), 4),
                    lambda: _with_full_alpha(decode(channels=4)),
                ),
                lambda: decode(channels=4),
            )
        return decode(channels=decoding.channels)


def _with_full_alpha(pixels: tf.Tensor) -> tf.Tensor:
    """Makes opaque what is not fully transparent, as all other pixels of such a grey image are.

    The alpha that TensorFlow adds is the largest number of the stored bits: 15 for 4 bits.
    """
    is_opaque = tf.cast(pixels[..., 3:] > 0, pixels.dtype)
    return tf.concat([pixels[..., :3], is_opaque * pixels.dtype.max], axis=2)
