"""WebP: decoding of the image, or of the first frame of an animation."""

from __future__ import annotations

import tensorflow as tf

from infeed_server.transforms.images.channels import to_channels, to_dtype
from infeed_server.transforms.images.decoding import Decoding
from infeed_server.transforms.images.file_bytes import first_bytes, numbers

_HEADER_BYTES = 30
_KIND = slice(12, 16)
_LOSSY, _LOSSLESS, _EXTENDED = (list(kind) for kind in (b"VP8 ", b"VP8L", b"VP8X"))
"""Names of the first chunk."""
_FLAGS = 20
"""Place of the flags of an extended file."""
_ANIMATED, _WITH_ALPHA = 0x02, 0x10
"""Flags."""
_14_BITS = 1 << 14
"""Limit of width and height, except in an extended file."""


def decode_webp(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a WebP to [height, width, channels]."""
    header = first_bytes(contents, _HEADER_BYTES)
    # The decoder accepts pixels without a chunk, whose size is elsewhere.
    is_known = tf.reduce_any([_is_kind(header, kind) for kind in (_LOSSY, _LOSSLESS, _EXTENDED)])
    problem = "is a WebP without its first chunk; the bytes of the chunk's name are"
    checks = decoding.require(is_known, problem, header[_KIND])
    is_opaque_animation = _is_kind(header, _EXTENDED) & (
        tf.bitwise.bitwise_and(header[_FLAGS], _ANIMATED | _WITH_ALPHA) == _ANIMATED
    )
    with tf.control_dependencies([*checks, *decoding.require_pixels(*_size(header))]):
        # TensorFlow writes the RGBA of each animation, and takes memory for RGB if it is opaque.
        safe = tf.cond(is_opaque_animation, lambda: _with_alpha_flag(contents), lambda: contents)
        pixels = tf.io.decode_image(safe, channels=0, expand_animations=False)
    pixels = pixels[..., : tf.where(is_opaque_animation, 3, 4)]
    return to_dtype(to_channels(pixels, decoding.channels), decoding.dtype)


def _is_kind(header: tf.Tensor, kind: list[int]) -> tf.Tensor:
    return tf.reduce_all(header[_KIND] == kind)


def _with_alpha_flag(contents: tf.Tensor) -> tf.Tensor:
    """Returns an animation that states alpha. The flags of metadata, which are lost, are unused."""
    rest = tf.strings.substr(contents, _FLAGS + 1, tf.strings.length(contents))
    flags = bytes([_ANIMATED | _WITH_ALPHA])
    return tf.strings.join([tf.strings.substr(contents, 0, _FLAGS), flags, rest])


def _size(header: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
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
