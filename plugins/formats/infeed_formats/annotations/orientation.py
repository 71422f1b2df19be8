"""Orientation of a JPEG by EXIF, as `decode_image` reads it, without TensorFlow: 1 is upright.

Pillow reads less of damaged EXIF, and more of what `decode_image` ignores.
"""

from __future__ import annotations

from typing import Literal

_EXIF = b"Exif\0\0"
_APP1 = 0xE1
_MIN_SEGMENT, _MIN_BARE, _START_OF_SCAN = 0xC0, 0xD0, 0xDA
_JFIF = b"\xff\xe0\0\x10"
_MAX_SEGMENTS = 100

_ORIENTATION_TAG = 0x0112
_SHORT, _LONG = 3, 4
_ENTRY_BYTES = 12

_ORDERS: dict[bytes, Literal["big", "little"]] = {b"MM\0*": "big", b"II*\0": "little"}


def jpeg_orientation(content: bytes) -> int:
    """Returns the orientation that the first segment with EXIF states, 1 to 8."""
    if _EXIF not in content:
        return 1
    place = 20 if content.startswith(_JFIF, 2) else 2
    for _ in range(_MAX_SEGMENTS + 1):
        header = content[place : place + 4 + len(_EXIF)].ljust(4, b"\0")
        marker, length = header[1], int.from_bytes(header[2:4], "big")
        if marker == _APP1 and header[4:] == _EXIF:
            begin, end = place + 4 + len(_EXIF), place + 2 + length
            return _tiff_orientation(content[begin:end].ljust(end - begin, b"\0"))
        if header[0] != 0xFF or marker < _MIN_SEGMENT or _MIN_BARE <= marker <= _START_OF_SCAN:
            break
        place += 1 if marker == 0xFF else 2 + length
    return 1


def _tiff_orientation(tiff: bytes) -> int:
    """Returns the greatest valid orientation of the first directory."""
    order = _ORDERS.get(tiff[:4])
    if order is None:
        return 1
    first = int.from_bytes(tiff[4:8], order) + 2
    count = int.from_bytes(tiff[first - 2 : first], order)
    stated = [1]
    for begin in range(first, min(first + count * _ENTRY_BYTES, len(tiff)), _ENTRY_BYTES):
        entry = tiff[begin : begin + _ENTRY_BYTES]
        tag, kind = int.from_bytes(entry[:2], order), int.from_bytes(entry[2:4], order)
        length = int.from_bytes(entry[4:8], order)
        is_short, is_long = kind == _SHORT and 0 < length <= 2, kind == _LONG and length == 1
        value = int.from_bytes(entry[8:10] if is_short else entry[8:], order)
        is_whole = len(entry) == _ENTRY_BYTES
        if tag == _ORIENTATION_TAG and is_whole and (is_short or is_long) and 1 <= value <= 8:
            stated.append(value)
    return max(stated)
