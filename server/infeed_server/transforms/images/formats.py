"""Image formats: recognized by the first bytes of a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from infeed_server.transforms.images.decoding import Decoding
from infeed_server.transforms.images.exif import may_have_exif
from infeed_server.transforms.images.file_bytes import first_bytes
from infeed_server.transforms.images.jpeg import (
    decode_any_jpeg,
    decode_jpeg,
    decode_upright_jpeg,
)
from infeed_server.transforms.images.png import decode_png
from infeed_server.transforms.images.rare_formats import decode_bmp, decode_gif, decode_webp
from infeed_server.transforms.images.traced import call_traced

_FORMATS: dict[bytes, Callable[[tf.Tensor, Decoding], tf.Tensor]] = {
    b"\xff\xd8\xff": decode_any_jpeg,
    b"\x89PNG\r\n\x1a\n": decode_png,
    b"GIF8": decode_gif,
    b"BM": decode_bmp,
    b"RIFF????WEBP": decode_webp,
}
"""First bytes of the formats; a question mark is any byte."""

_LONGEST = max(map(len, _FORMATS))


Decode: TypeAlias = "Callable[[], tf.Tensor]"


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
    """Decodes an image by the function for it: `upright_jpeg` is for a JPEG that may have EXIF.

    `is_jpeg` is false where `other` is to decode the image, whatever its format. One selection
    among all, since each takes some of the time of a small image.
    """
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
    decoders = (*_FORMATS.values(), _refuse)
    branches = [
        partial(call_traced, decoder, contents, options=(decoding,)) for decoder in decoders
    ]
    pixels = tf.switch_case(_format_index(contents), branches)
    return tf.ensure_shape(pixels, [None, None, decoding.channels or None])


def _format_index(contents: tf.Tensor) -> tf.Tensor:
    """Returns the index in `_FORMATS`, or their number for an unknown format."""
    expected = np.frombuffer(
        b"".join(decoder.ljust(_LONGEST, b"?") for decoder in _FORMATS), np.uint8
    )
    expected = expected.reshape(len(_FORMATS), _LONGEST)
    start = first_bytes(contents, _LONGEST)
    is_format = tf.reduce_all((start == expected) | (expected == ord("?")), axis=1)
    return tf.argmax(tf.concat([is_format, [True]], 0), output_type=tf.int32)


def _refuse(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    known = "must be a JPEG, PNG, GIF, BMP or WebP; its first bytes are"
    length = tf.strings.length(contents)
    with tf.control_dependencies(decoding.require(length > 0, "is an empty file; bytes:", length)):
        # TensorFlow cannot raise an error of a graph whose message is not UTF-8: there, numbers.
        start = tf.strings.substr(contents, 0, 3)
        if not tf.executing_eagerly():
            start = first_bytes(contents, 3)[:length]
        refused = decoding.require(False, known, start)
    with tf.control_dependencies(refused):
        return tf.zeros([0, 0, decoding.channels or 1], decoding.dtype)
