"""JPEG: decoding of the image or of a window of it, upright."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from infeed_server.transforms.images.graph import Decoding, to_channels, to_dtype
from infeed_server.transforms.images.orientation import (
    jpeg_orientation,
    orient,
    oriented_size,
    stored_window,
)

_CMYK_CHANNELS = 4
START_OF_IMAGE, END_OF_IMAGE = b"\xff\xd8", b"\xff\xd9"
"""Markers."""

_MARGIN = 2
"""Extra columns decoded on each side of a window: colour stored at half the resolution is smoothed
with its neighbours, so the window's own columns equal those of the whole image."""


def decode_jpeg(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a JPEG to [height, width, channels], as it is stored."""
    shape = tf.io.extract_jpeg_shape(contents)
    with tf.control_dependencies(decoding.require_pixels(shape[0], shape[1])):
        pixels = _decode(
            lambda channels: tf.io.decode_jpeg(contents, channels, ratio=decoding.scale),
            shape[2],
            decoding.channels,
        )
    return to_dtype(pixels, decoding.dtype)


def decode_upright_jpeg(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a JPEG to [height, width, channels], upright."""
    return orient(decode_jpeg(contents, decoding), jpeg_orientation(contents))


def is_whole_jpeg(contents: tf.Tensor) -> tf.Tensor:
    """Returns whether the file is a JPEG that ends with its last marker. A window that lies above
    the end of a truncated file would be decoded without an error."""
    end = tf.strings.substr(contents, tf.maximum(tf.strings.length(contents) - 2, 0), 2)
    return tf.io.is_jpeg(contents) & (end == END_OF_IMAGE)


def is_cut_off(contents: bytes) -> bool:
    """Returns whether the file is a JPEG that does not end with its last marker."""
    return contents[:2] == START_OF_IMAGE and contents[-2:] != END_OF_IMAGE


def decode_jpeg_window(
    contents: tf.Tensor,
    decoding: Decoding,
    choose_window: Callable[[tf.Tensor], tf.Tensor],
    *,
    upright: bool = False,
) -> tf.Tensor:
    """Decodes the window that `choose_window` returns for the shape of the image, as stored, or
    turned `upright`."""
    shape = tf.io.extract_jpeg_shape(contents)
    size = shape[:2]
    orientation = jpeg_orientation(contents) if upright else None
    seen = oriented_size(size, orientation) if upright else size
    window = choose_window(tf.concat([seen, [decoding.channels]], 0))
    if upright:
        window = stored_window(window, size, orientation)
    y, x, height, width = tf.unstack(window)
    begin = tf.maximum(x - _MARGIN, 0)
    end = tf.minimum(x + width + _MARGIN, shape[1])
    with tf.control_dependencies(decoding.require_pixels(shape[0], shape[1])):
        decoded = _decode(
            lambda channels: tf.io.decode_and_crop_jpeg(
                contents, tf.stack([y, begin, height, end - begin]), channels
            ),
            shape[2],
            decoding.channels,
        )
    pixels = decoded[:, x - begin : x - begin + width]
    return orient(pixels, orientation) if upright else pixels


def _decode(
    read: Callable[[int], tf.Tensor], stored_channels: tf.Tensor, channels: int
) -> tf.Tensor:
    """Calls `read` with a number of channels that TensorFlow supports, and converts the result."""
    if channels == 1:
        # TensorFlow decodes CMYK to RGB only.
        return tf.cond(
            stored_channels == _CMYK_CHANNELS,
            lambda: to_channels(read(3), 1),
            lambda: read(1),
        )
    return to_channels(read(3), 4) if channels == 4 else read(channels)
