"""Orientation of a JPEG, as EXIF states it: 1 is upright.

EXIF is in a segment APP1 before the pixels. Segments are followed up to the first with EXIF; EXIF
elsewhere, such as in an embedded picture, does not count. Only a file with the identifier is
searched, so a JPEG without EXIF costs a few small operations. Damaged EXIF never fails the sample:
the image then counts as upright.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed_server.transforms.images.graph import (
    begins_with,
    call_traced,
    first_bytes,
    numbers,
    read_bytes,
    trace,
)

UPRIGHT, SIDEWAYS = 1, 5
"""Orientations; from `SIDEWAYS` on, rows are stored as columns."""

_EXIF = b"Exif\0\0"
"""Identifier of the segment, behind its marker and its length."""
_APP1 = 0xE1
_MIN_SEGMENT, _MIN_BARE, _START_OF_SCAN = 0xC0, 0xD0, 0xDA
"""Markers: from the first on, segments have a length, except those from the second to the third.
The pixels follow the third."""
_SEGMENT_HEADER = 4 + len(_EXIF)
"""Marker, length and identifier."""

_JFIF = b"\xff\xe0\0\x10"
"""Begins the segment APP0 of 18 bytes, as nearly every JPEG has it behind its first two bytes."""
_FIRST_SEGMENT, _AFTER_JFIF = 2, 20

_MAX_SEGMENTS = 100
"""Segments searched for EXIF, besides JFIF's: more let a crafted file take longer."""

_ORIENTATION_TAG = 0x0112
_SHORT, _LONG = 3, 4
_ENTRY_BYTES = 12

_FLIPS = np.array(
    [
        *((False, False), (False, True), (True, True), (True, False)),
        *((False, False), (True, False), (True, True), (False, True)),
    ]
)
"""Whether the rows and the columns of the stored image are reversed, by orientation from 1. From 5
on, the result is then transposed."""


def may_have_exif(contents: tf.Tensor) -> tf.Tensor:
    """Returns whether the identifier of EXIF is anywhere in the file."""
    parts = tf.raw_ops.StringSplitV2(input=contents[tf.newaxis], sep=_EXIF, maxsplit=1)
    return tf.size(parts.values) == 2


def jpeg_orientation(contents: tf.Tensor) -> tf.Tensor:
    """Returns the orientation that the first segment with EXIF states, 1 to 8, int32."""
    return call_traced(_search, contents)


def orientations(contents: npt.NDArray[np.object_]) -> npt.NDArray[np.uint8]:
    """Returns the orientation of each JPEG, 1 to 8; outside of a graph."""
    may_have = np.array([_EXIF in content for content in contents.tolist()], np.bool_)
    stated = np.full(len(contents), UPRIGHT, np.uint8)
    if may_have.any():
        search = trace(_search_each, (tf.TensorSpec([None], tf.string),))
        stated[may_have] = search(tf.constant(contents[may_have])).numpy()
    return stated


def orient(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turns a stored image, or a part of it, upright."""

    def turn() -> tf.Tensor:
        flips = tf.concat([tf.gather(_FLIPS, orientation - 1), [False]], 0)
        flipped = tf.raw_ops.Reverse(tensor=pixels, dims=flips)
        return tf.transpose(flipped, tf.where(orientation >= SIDEWAYS, [1, 0, 2], [0, 1, 2]))

    turned = tf.cond(orientation == UPRIGHT, lambda: pixels, turn)
    return tf.ensure_shape(turned, [None, None, pixels.shape[2]])


def oriented_size(size: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns [height, width] of the upright image, from the stored image's."""
    return tf.where(orientation >= SIDEWAYS, size[::-1], size)


def stored_window(window: tf.Tensor, size: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns the window (y, x, height, width) of the stored image, of `size`, that shows a window
    of the upright one."""
    begin, extent = (oriented_size(pair, orientation) for pair in (window[:2], window[2:]))
    flips = tf.gather(_FLIPS, orientation - 1)
    return tf.concat([tf.where(flips, size - begin - extent, begin), extent], 0)


def _search_each(contents: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(_search, contents, fn_output_signature=tf.int32)


def _search(contents: tf.Tensor) -> tf.Tensor:
    def is_followed(_place: tf.Tensor, header: tf.Tensor) -> tf.Tensor:
        marker = header[1]
        is_segment = (marker < _MIN_BARE) | (marker > _START_OF_SCAN)
        return (header[0] == 0xFF) & (marker >= _MIN_SEGMENT) & is_segment & ~_is_exif(header)

    def follow(place: tf.Tensor, header: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # A marker may be preceded by any number of bytes 0xFF.
        place += tf.where(header[1] == 0xFF, 1, 2 + _length(header))
        return place, read_bytes(contents, place, _SEGMENT_HEADER)

    has_jfif = begins_with(first_bytes(contents, 6)[2:], _JFIF)
    first = tf.where(has_jfif, _AFTER_JFIF, _FIRST_SEGMENT)
    place, header = tf.while_loop(
        is_followed,
        follow,
        (first, read_bytes(contents, first, _SEGMENT_HEADER)),
        parallel_iterations=1,
        maximum_iterations=_MAX_SEGMENTS,
    )
    size = tf.maximum(_length(header) + 2 - _SEGMENT_HEADER, 0)
    return tf.cond(
        _is_exif(header),
        # With room for the number of entries at any place up to the end.
        lambda: _tiff_orientation(read_bytes(contents, place + _SEGMENT_HEADER, size + 8), size),
        lambda: UPRIGHT,
    )


def _tiff_orientation(tiff: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns the orientation that the first directory of `size` bytes of TIFF states."""
    is_big, is_little = begins_with(tiff, b"MM\0*"), begins_with(tiff, b"II*\0")

    def at(data: tf.Tensor, *places: tuple[int, int]) -> list[tf.Tensor]:
        values: list[tf.Tensor] = tf.unstack(numbers(data, places, big_endian=is_big), axis=-1)
        return values

    (directory,) = at(tiff, (4, 4))
    directory = tf.cast(tf.minimum(directory, tf.cast(size, tf.int64)), tf.int32)
    (count,) = at(tiff[directory:], (0, 2))
    first = directory + 2
    room = tf.maximum(size - first, 0) // _ENTRY_BYTES
    count = tf.minimum(tf.cast(count, tf.int32), room)
    entries = tf.reshape(tiff[first : first + count * _ENTRY_BYTES], [count, _ENTRY_BYTES])
    tag, kind, length, short, long = at(entries, (0, 2), (2, 2), (4, 4), (8, 2), (8, 4))
    # An entry has values of four bytes; of two shorts, the first counts.
    is_short, is_long = (kind == _SHORT) & (length <= 2), (kind == _LONG) & (length == 1)
    value = tf.where(is_short, short, long)
    is_stated = (tag == _ORIENTATION_TAG) & (length > 0) & (is_short | is_long)
    is_stated &= (value >= UPRIGHT) & (value <= 8) & (is_big | is_little)
    stated = tf.reduce_max(tf.where(is_stated, value, UPRIGHT))
    # Without entries, the maximum is the least number.
    return tf.cast(tf.maximum(stated, UPRIGHT), tf.int32)


def _is_exif(header: tf.Tensor) -> tf.Tensor:
    return (header[1] == _APP1) & begins_with(header[4:], _EXIF)


def _length(header: tf.Tensor) -> tf.Tensor:
    """Returns the length that a segment states, which excludes its marker."""
    return tf.cast(numbers(header, ((2, 2),), big_endian=True)[0], tf.int32)
