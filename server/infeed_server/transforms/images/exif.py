"""EXIF orientation of a JPEG.

EXIF is in a segment APP1 near the file's start: the first, the one after JFIF's APP0, or behind
other segments of applications and comments. Only where there are such segments are they read one
after the other, so that a JPEG without EXIF costs a few small operations. EXIF that is torn or
wrong never fails the sample: the image then counts as upright.
"""

from __future__ import annotations

import tensorflow as tf

from infeed_server.transforms.images.file_bytes import numbers, read_bytes
from infeed_server.transforms.images.traced import call_traced

UPRIGHT = 1

_JFIF_MARKER, _JFIF_LENGTH = 0xFFE0, 16
"""APP0 of 16 bytes, as nearly every JPEG has it behind its first two bytes."""

_APP1_MARKER = 0xFFE1
_FILL = 0xFFFF
"""Two of the bytes that may precede a marker."""
_SKIPPED_SEGMENTS = 2
"""Segments besides JFIF's that are skipped without control flow. A file with more of them is
searched as if it had EXIF, which takes a tenth of the time of a small image."""

_FIRST_SEGMENT = 2
_AFTER_JFIF = 20

_MIN_MARKER = 0xE0
"""The least marker of the segments of applications and comments. Markers of tables and of the
frame, which follow them, are less."""

_APP1 = 0xE1
_EXIF = b"Exif\0\0"
_SEGMENT_HEADER = 4 + len(_EXIF)
"""Marker, length and identifier."""

_MAX_SEGMENTS = 100
"""Segments in which EXIF is searched for, so that a crafted file takes no time."""

_TIFF_HEADERS = {"little": b"II*\0", "big": b"MM\0*"}
_ORIENTATION_TAG = 0x0112
_SHORT = 3
_ENTRY_BYTES = 12


def may_have_exif(contents: tf.Tensor) -> tf.Tensor:
    """Returns whether EXIF may be among the first segments of a JPEG.

    False for nearly all JPEGs without it, after a few operations and without control flow.
    """
    start = _pairs(contents, tf.constant(0), 12)
    has_jfif = _has_jfif(start)
    place = tf.where(has_jfif, _AFTER_JFIF, _FIRST_SEGMENT)
    header = tf.where(has_jfif, start[10:], start[1:3])
    for _ in range(_SKIPPED_SEGMENTS):
        marker, length = tf.unstack(header)
        is_other = (marker > _APP1_MARKER) & (marker < _FILL)
        place = tf.where(is_other, place + 2 + length, place)
        header = _pairs(contents, place, 2)
    return header[0] >= _JFIF_MARKER


def _has_jfif(start: tf.Tensor) -> tf.Tensor:
    return tf.reduce_all(start[1:3] == [_JFIF_MARKER, _JFIF_LENGTH])


def _pairs(contents: tf.Tensor, begin: tf.Tensor, count: int) -> tf.Tensor:
    """Returns numbers of two bytes each, big-endian, int32."""
    part = tf.strings.substr(contents, tf.minimum(begin, tf.strings.length(contents)), 2 * count)
    pairs = tf.io.decode_raw(part, tf.uint16, little_endian=False, fixed_length=2 * count)
    return tf.cast(pairs, tf.int32)


def jpeg_orientation(contents: tf.Tensor) -> tf.Tensor:
    """Returns the orientation of a JPEG, 1 to 8, int32."""
    return call_traced(_search, contents)


def _search(contents: tf.Tensor) -> tf.Tensor:
    """Returns the orientation that the first EXIF states."""

    def is_followed(_place: tf.Tensor, header: tf.Tensor) -> tf.Tensor:
        return (header[0] == 0xFF) & (header[1] >= _MIN_MARKER) & ~_is_exif(header)

    def follow(place: tf.Tensor, header: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # A marker may be preceded by any number of bytes 0xFF.
        step = tf.where(header[1] == 0xFF, 1, 2 + _length(header))
        place = place + step
        return place, read_bytes(contents, place, _SEGMENT_HEADER)

    start = _pairs(contents, tf.constant(0), 3)
    first = tf.where(_has_jfif(start), _AFTER_JFIF, _FIRST_SEGMENT)
    place, header = tf.while_loop(
        is_followed,
        follow,
        (first, read_bytes(contents, first, _SEGMENT_HEADER)),
        parallel_iterations=1,
        maximum_iterations=_MAX_SEGMENTS,
    )
    tiff_bytes = tf.maximum(_length(header) + 2 - _SEGMENT_HEADER, 0)
    return tf.cond(
        _is_exif(header),
        lambda: _tiff_orientation(
            # With room for the number of entries at any place up to the end.
            read_bytes(contents, place + _SEGMENT_HEADER, tiff_bytes + 8),
            tiff_bytes,
        ),
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


def _is_exif(header: tf.Tensor) -> tf.Tensor:
    return (header[1] == _APP1) & _begins_with(header[4:], _EXIF)


def _length(header: tf.Tensor) -> tf.Tensor:
    """Returns the length that a segment states: of all but its marker."""
    return tf.cast(numbers(header, ((2, 2),), big_endian=True)[0], tf.int32)


def _begins_with(data: tf.Tensor, text: bytes) -> tf.Tensor:
    return tf.reduce_all(data[: len(text)] == list(text))
