"""Image formats: recognized by the first bytes of a file; kinds that TensorFlow decodes wrongly are
refused with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from infeed_server.transforms.images.graph import (
    Decoding,
    average_blocks,
    begins_with,
    call_traced,
    first_bytes,
    luma,
    numbers,
    to_channels,
    to_dtype,
)
from infeed_server.transforms.images.jpeg import decode_jpeg, decode_upright_jpeg
from infeed_server.transforms.images.orientation import may_have_exif

Decode: TypeAlias = "Callable[[], tf.Tensor]"

_REMEDY = "convert it to PNG"

_COLOUR_BIT = 2
"""Bit of a PNG's colour type: neither grey nor grey with alpha."""
_PALETTE = 3
"""Colour type of a PNG."""

_BMP_LAYOUT = ((14, 4), (18, 4), (22, 4), (28, 2), (30, 4), (10, 4))
"""Places and sizes of the second header's size, width, height, bits of a pixel, compression, and of
the offset of the pixels."""
_MIN_BMP_HEADER = 40
"""Bytes: the first header of Windows; the header of OS/2, with other places, is shorter."""

_WEBP_FLAGS = 20
"""Place of the flags of an extended file."""
_ANIMATED, _WITH_ALPHA = 0x02, 0x10
"""Flags."""
_14_BITS = 1 << 14
"""Limit of width and height of a WebP, except in an extended file."""


def decode(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes an image to [height, width, channels]."""
    return decode_by_format(
        contents,
        decoding,
        is_jpeg=tf.io.is_jpeg(contents),
        jpeg=lambda: decode_jpeg(contents, decoding),
        upright_jpeg=lambda: decode_upright_jpeg(contents, decoding),
        other=lambda: decode_traced(contents, decoding),
    )


def decode_by_format(
    contents: tf.Tensor,
    decoding: Decoding,
    *,
    is_jpeg: tf.Tensor,
    jpeg: Decode,
    upright_jpeg: Decode,
    other: Decode,
) -> tf.Tensor:
    """Decodes an image by the function of its format; `upright_jpeg` is for a JPEG that may have
    EXIF. Where `is_jpeg` is false, `other` decodes the image, in any format. One selection among
    all formats, since each selection costs a small image time."""
    if decoding.oriented:
        index = tf.where(is_jpeg, tf.cast(may_have_exif(contents), tf.int32), 2)
        pixels = tf.switch_case(index, [jpeg, upright_jpeg, other])
    else:
        pixels = tf.cond(is_jpeg, jpeg, other)
    return tf.ensure_shape(pixels, [None, None, decoding.channels or None])


def decode_traced(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes an image to [height, width, channels], by one call of a function of the graph."""
    return call_traced(_decode, contents, options=(decoding,))


def _decode(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    longest = max(map(len, _FORMATS))
    expected = np.array([[*start.ljust(longest, b"?")] for start in _FORMATS], np.uint8)
    start = first_bytes(contents, longest)
    is_format = tf.reduce_all((start == expected) | (expected == ord("?")), axis=1)
    index = tf.argmax(tf.concat([is_format, [True]], 0), output_type=tf.int32)
    branches = [
        partial(call_traced, decoder, contents, options=(decoding,))
        for decoder in (*_FORMATS.values(), _refuse)
    ]
    pixels = tf.switch_case(index, branches)
    if decoding.scale > 1:
        is_jpeg = index == [*_FORMATS.values()].index(_decode_jpeg)
        small = partial(average_blocks, pixels, decoding.scale)
        pixels = tf.cond(is_jpeg, lambda: pixels, small)
    return tf.ensure_shape(pixels, [None, None, decoding.channels or None])


def _decode_jpeg(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    return (decode_upright_jpeg if decoding.oriented else decode_jpeg)(contents, decoding)


def _decode_png(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a PNG with all bits, even to channels that TensorFlow converts wrongly."""
    header = first_bytes(contents, 26)
    width, height = tf.unstack(numbers(header, ((16, 4), (20, 4)), big_endian=True))
    bit_depth, colour_type = header[24], header[25]
    read = partial(tf.io.decode_png, contents, dtype=tf.as_dtype(decoding.dtype))
    # The decoder accepts a PNG with another chunk before the one that has its size.
    problem = "must begin with its size, a chunk IHDR; the bytes of its first chunk's name are"
    checks = decoding.require(begins_with(header[12:], b"IHDR"), problem, header[12:16])
    with tf.control_dependencies([*checks, *decoding.require_pixels(height, width)]):
        if decoding.channels == 1:
            # libpng would convert in linear light if the file states its gamma, unlike any other
            # decoder.
            is_grey = tf.bitwise.bitwise_and(colour_type, _COLOUR_BIT) == 0
            return tf.cond(is_grey, lambda: read(channels=1), lambda: luma(read(channels=3)))
        if decoding.channels == 4:
            return tf.cond(
                bit_depth < 8,
                lambda: tf.cond(
                    colour_type == _PALETTE,
                    lambda: to_channels(read(channels=0), 4),
                    lambda: _with_full_alpha(read(channels=4)),
                ),
                lambda: read(channels=4),
            )
        return read(channels=decoding.channels)


def _with_full_alpha(pixels: tf.Tensor) -> tf.Tensor:
    """Makes pixels opaque unless they are fully transparent: such a grey image has no others. The
    alpha that TensorFlow adds is the largest number of the stored bits: 15 for 4 bits."""
    is_opaque = tf.cast(pixels[..., 3:] > 0, pixels.dtype)
    return tf.concat([pixels[..., :3], is_opaque * pixels.dtype.max], axis=2)


def _decode_gif(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes the first frame of a GIF; transparent pixels are black. TensorFlow's result has the
    size of the largest frame, which must be that of the canvas."""
    canvas = numbers(first_bytes(contents, 10), ((8, 2), (6, 2)))
    problem = f"is a GIF, whose transparency is not decoded; {_REMEDY}; its channels are to be"
    supported = decoding.require(decoding.channels != 4, problem, tf.constant(decoding.channels))
    with tf.control_dependencies([*supported, *decoding.require_pixels(canvas[0], canvas[1])]):
        pixels = tf.io.decode_image(contents, channels=3, expand_animations=False)
    size = tf.shape(pixels, tf.int64)[:2]
    problem = f"is a GIF whose frames do not fill its canvas; {_REMEDY}; height and width are"
    with tf.control_dependencies(decoding.require(tf.reduce_all(size == canvas), problem, canvas)):
        return to_dtype(to_channels(tf.identity(pixels), decoding.channels), decoding.dtype)


def _decode_bmp(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a BMP of 24 or 32 bits. A fourth byte is not alpha."""
    header = numbers(first_bytes(contents, 34), _BMP_LAYOUT)
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


def _decode_webp(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a WebP, or the first frame of an animation."""
    header = first_bytes(contents, 30)
    lossy, lossless, extended = (
        begins_with(header[12:], kind) for kind in (b"VP8 ", b"VP8L", b"VP8X")
    )
    # The decoder accepts pixels without a chunk, whose size is elsewhere.
    problem = "is a WebP without its first chunk; the bytes of the chunk's name are"
    checks = decoding.require(lossy | lossless | extended, problem, header[12:16])
    flags = tf.bitwise.bitwise_and(header[_WEBP_FLAGS], _ANIMATED | _WITH_ALPHA)
    is_opaque_animation = extended & (flags == _ANIMATED)
    packed, plain, canvas = (
        numbers(header, places) for places in (((21, 4),), ((28, 2), (26, 2)), ((27, 3), (24, 3)))
    )
    size = tf.where(extended, canvas + 1, plain % _14_BITS)
    size = tf.where(lossless, packed // (_14_BITS, 1) % _14_BITS + 1, size)
    with tf.control_dependencies([*checks, *decoding.require_pixels(size[0], size[1])]):
        # TensorFlow writes the RGBA of each animation, and takes memory for RGB if it is opaque.
        safe = tf.cond(is_opaque_animation, lambda: _with_alpha_flag(contents), lambda: contents)
        pixels = tf.io.decode_image(safe, channels=0, expand_animations=False)
    pixels = pixels[..., : tf.where(is_opaque_animation, 3, 4)]
    return to_dtype(to_channels(pixels, decoding.channels), decoding.dtype)


def _with_alpha_flag(contents: tf.Tensor) -> tf.Tensor:
    """Returns an animation whose header states alpha. The flags of metadata, which are lost, are
    unused."""
    rest = tf.strings.substr(contents, _WEBP_FLAGS + 1, tf.strings.length(contents))
    flags = bytes([_ANIMATED | _WITH_ALPHA])
    return tf.strings.join([tf.strings.substr(contents, 0, _WEBP_FLAGS), flags, rest])


def _refuse(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    known = "must be a JPEG, PNG, GIF, BMP or WebP; its first bytes are"
    length = tf.strings.length(contents)
    with tf.control_dependencies(decoding.require(length > 0, "is an empty file; bytes:", length)):
        # In a graph, TensorFlow cannot raise an error whose message is not UTF-8: it shows numbers.
        start = tf.strings.substr(contents, 0, 3)
        if not tf.executing_eagerly():
            start = first_bytes(contents, 3)[:length]
        refused = decoding.require(False, known, start)
    with tf.control_dependencies(refused):
        return tf.zeros([0, 0, decoding.channels or 1], decoding.dtype)


_FORMATS: dict[bytes, Callable[[tf.Tensor, Decoding], tf.Tensor]] = {
    b"\xff\xd8\xff": _decode_jpeg,
    b"\x89PNG\r\n\x1a\n": _decode_png,
    b"GIF8": _decode_gif,
    b"BM": _decode_bmp,
    b"RIFF????WEBP": _decode_webp,
}
"""First bytes of the formats; a question mark is any byte."""
