"""EXIF orientation of a JPEG, which is in a segment APP1 near the file's start.

It is found by its identifier, so that a JPEG without EXIF costs a few small operations. EXIF that
is torn or wrong never fails the sample: the image then counts as upright.
"""

from __future__ import annotations

import tensorflow as tf

from infeed_server.transforms.images.file_bytes import numbers, read_bytes
from infeed_server.transforms.images.traced import call_traced

UPRIGHT = 1

_EXIF = b"Exif\0\0"
"""Identifier of the segment, behind its marker and its length."""
_APP1 = (0xFF, 0xE1)
_HEADER_BYTES = 4
"""Bytes of marker and length."""

_TIFF_HEADERS = {"little": b"II*\0", "big": b"MM\0*"}
_ORIENTATION_TAG = 0x0112
_SHORT = 3
_ENTRY_BYTES = 12


def may_have_exif(contents: tf.Tensor) -> tf.Tensor:
    """Returns whether the identifier of EXIF is in the file."""
    return tf.size(_split(contents)) == 2


def jpeg_orientation(contents: tf.Tensor) -> tf.Tensor:
    """Returns the orientation of a JPEG, 1 to 8, int32."""
    return call_traced(_search, contents)


def _split(contents: tf.Tensor) -> tf.Tensor:
    """Returns the file, or what is before and behind the first identifier of EXIF."""
    parts = tf.raw_ops.StringSplitV2(input=contents[tf.newaxis], sep=_EXIF, maxsplit=1)
    return parts.values


def _search(contents: tf.Tensor) -> tf.Tensor:
    """Returns the orientation that the first EXIF states."""
    parts = tf.concat([_split(contents), ["", ""]], 0)
    before, behind = parts[0], parts[1]
    begin = tf.maximum(tf.strings.length(before) - _HEADER_BYTES, 0)
    header = read_bytes(before, begin, _HEADER_BYTES)
    length = tf.cast(numbers(header, ((2, 2),), big_endian=True)[0], tf.int32)
    size = tf.maximum(length - 2 - len(_EXIF), 0)
    # With room for the number of entries at any place up to the end.
    tiff = read_bytes(behind, tf.constant(0), size + 8)
    return tf.cond(
        tf.reduce_all(header[:2] == _APP1),
        lambda: _tiff_orientation(tiff, size),
        lambda: UPRIGHT,
    )


def _tiff_orientation(tiff: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns the orientation that the first directory of `size` bytes of TIFF states."""
    is_big, is_little = (_begins_with(tiff, _TIFF_HEADERS[order]) for order in ("big", "little"))

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
    tag, kind, length, value = at(entries, (0, 2), (2, 2), (4, 4), (8, 2))
    states_it = (
        (tag == _ORIENTATION_TAG)
        & (kind == _SHORT)
        & (length == 1)
        & (value >= UPRIGHT)
        & (value <= 8)
        & (is_big | is_little)
    )
    stated = tf.reduce_max(tf.where(states_it, value, UPRIGHT))
    # Without entries, the maximum is the least number.
    return tf.cast(tf.maximum(stated, UPRIGHT), tf.int32)


def _begins_with(data: tf.Tensor, text: bytes) -> tf.Tensor:
    return tf.reduce_all(data[: len(text)] == list(text))
