"""GIF, BMP and WebP: kinds that TensorFlow decodes rightly; others are refused with a remedy."""

from __future__ import annotations

import tensorflow as tf

from infeed_server.transforms.images.channels import to_channels, to_dtype
from infeed_server.transforms.images.decoding import Decoding
from infeed_server.transforms.images.file_bytes import first_bytes, numbers

_REMEDY = "convert it to PNG"

_BMP_HEADER_BYTES = 34
_BMP_LAYOUT = ((14, 4), (18, 4), (22, 4), (28, 2), (30, 4), (10, 4))
"""Places and sizes of the second header's size, width, height, bits of a pixel, compression, and of
the offset of the pixels."""
_MIN_BMP_HEADER = 40
"""Bytes: the first header of Windows; the header of OS/2, with other places, is shorter."""

_WEBP_HEADER_BYTES = 30
_KIND = slice(12, 16)
_LOSSY, _LOSSLESS, _EXTENDED = (list(kind) for kind in (b"VP8 ", b"VP8L", b"VP8X"))
"""Names of the first chunk."""
_FLAGS = 20
"""Place of the flags of an extended file."""
_ANIMATED = 0x02
"""Flag."""
_14_BITS = 1 << 14
"""Limit of width and height, except in an extended file."""


def decode_gif(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes the first frame of a GIF to [height, width, channels]; transparent pixels are black.

    TensorFlow's result has the size of the largest frame, which must be the canvas's.
    """
    canvas = numbers(first_bytes(contents, 10), ((8, 2), (6, 2)))
    problem = f"is a GIF, whose transparency is not decoded; {_REMEDY}; its channels are to be"
    supported = decoding.require(decoding.channels != 4, problem, tf.constant(decoding.channels))
    with tf.control_dependencies([*supported, *decoding.require_pixels(canvas[0], canvas[1])]):
        pixels = tf.io.decode_image(contents, channels=3, expand_animations=False)
    size = tf.shape(pixels, tf.int64)[:2]
    problem = f"is a GIF whose frames do not fill its canvas; {_REMEDY}; height and width are"
    with tf.control_dependencies(decoding.require(tf.reduce_all(size == canvas), problem, canvas)):
        return to_dtype(to_channels(tf.identity(pixels), decoding.channels), decoding.dtype)


def decode_bmp(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a BMP of 24 or 32 bits to [height, width, channels]. A fourth byte is no alpha."""
    header = numbers(first_bytes(contents, _BMP_HEADER_BYTES), _BMP_LAYOUT)
    header_bytes, width, height, bits, compression, offset = tf.unstack(header)
    height = tf.where(height < 1 << 31, height, (1 << 32) - height)  # negative: the top row first
    is_plain = (header_bytes >= _MIN_BMP_HEADER) & ((bits == 24) | (bits == 32))
    is_plain &= (compression == 0) & (width > 0) & (height > 0)
    problem = f"is not a plain BMP of 24 or 32 bits; {_REMEDY}; its bits and compression are"
    checks = decoding.require(is_plain, problem, header[3:5])
    with tf.control_dependencies([*checks, *decoding.require_pixels(height, width)]):
        # The decoder refuses a file with bytes behind the pixels.
        end = offset + (width * bits // 8 + 3) // 4 * 4 * height
        pixels = tf.io.decode_bmp(tf.strings.substr(contents, tf.constant(0, tf.int64), end))
    return to_dtype(to_channels(pixels[..., :3], decoding.channels), decoding.dtype)


def decode_webp(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a WebP that is no animation to [height, width, channels]."""
    header = first_bytes(contents, _WEBP_HEADER_BYTES)
    # The decoder accepts pixels without a chunk, whose size is elsewhere.
    is_known = tf.reduce_any([_is_kind(header, kind) for kind in (_LOSSY, _LOSSLESS, _EXTENDED)])
    problem = "is a WebP without its first chunk; the bytes of the chunk's name are"
    checks = decoding.require(is_known, problem, header[_KIND])
    # Of an opaque animation, TensorFlow writes RGBA into memory for RGB.
    is_animated = _is_kind(header, _EXTENDED) & (header[_FLAGS] // _ANIMATED % 2 == 1)
    problem = f"is an animated WebP; {_REMEDY}; its flags are"
    checks += decoding.require(~is_animated, problem, header[_FLAGS])
    with tf.control_dependencies([*checks, *decoding.require_pixels(*_webp_size(header))]):
        pixels = tf.io.decode_image(contents, channels=0, expand_animations=False)
    return to_dtype(to_channels(pixels, decoding.channels), decoding.dtype)


def _is_kind(header: tf.Tensor, kind: list[int]) -> tf.Tensor:
    return tf.reduce_all(header[_KIND] == kind)


def _webp_size(header: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns height and width."""
    packed, lossy, extended = (
        numbers(header, places) for places in (((21, 4),), ((28, 2), (26, 2)), ((27, 3), (24, 3)))
    )
    size = tf.where(
        _is_kind(header, _LOSSLESS),
        packed // (_14_BITS, 1) % _14_BITS + 1,
        tf.where(_is_kind(header, _EXTENDED), extended + 1, lossy % _14_BITS),
    )
    height, width = tf.unstack(size)
    return height, width
