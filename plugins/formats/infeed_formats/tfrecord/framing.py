"""The TFRecord file format: decoding and locating records.

record = length: uint64 LE · masked CRC of length · data · masked CRC of data
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_server.storage.files import is_remote
from infeed_server.storage.handles import FileHandle

HEADER_BYTES = 12
"""Bytes before a record's data: its length and the CRC of the length."""
FOOTER_BYTES = 4
"""Bytes after a record's data: the CRC of the data."""
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

_MAX_LENGTH = 0xFFFFFFFF
"""Maximum bytes of a record's data; the index stores them in 32 bits."""
_SCAN_WINDOW = 8 << 20
"""Bytes read at once while scanning small records."""
_SKIP_WINDOW = 4 << 10
"""Bytes read at once while scanning large records, whose data is skipped."""
_SKIP_THRESHOLD = 64 << 10
"""Bytes; longer data is skipped, as one small read costs less than reading it all."""

_UNPACK = {
    "GZIP": "gunzip",
    "ZLIB": "python3 -c 'import sys, zlib; "
    "sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))'",
}
"""A file's compression → the command that unpacks it."""

_FOOTER_AND_HEADER = struct.Struct("<IQI")

Uint32Array = npt.NDArray[np.uint32]


class FileRecords(NamedTuple):
    """The whole records of a file, in order."""

    lengths: Uint32Array
    """Bytes of each record's data."""
    crcs: Uint32Array
    """Stored CRC of each record's data."""
    damaged: npt.NDArray[np.int64] | None = None
    """Numbers of the records whose data does not match its CRC; None if it was not verified."""


def masked_crc(data: bytes) -> int:
    """Returns the CRC-32C as TFRecord stores it, masked so that a CRC of CRCs stays good."""
    return _mask(google_crc32c.value(data))


def _mask(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class OtherRecordError(ValueError):
    """A valid record that is not the indexed one."""


def decode_record(frame: bytes, length: int, crc: int) -> bytes:
    """Returns the data of a record whose length and CRC are in the index. Raises `ValueError` with
    the defect of a damaged record, and `OtherRecordError`."""
    stored_length = int.from_bytes(frame[:8], "little")
    if masked_crc(frame[:8]) != int.from_bytes(frame[8:HEADER_BYTES], "little"):
        raise ValueError("the CRC of its length does not match")
    if stored_length != length:
        raise OtherRecordError(f"its length is {stored_length}, but {length} in the index")
    data = frame[HEADER_BYTES : HEADER_BYTES + length]
    data_crc = int.from_bytes(frame[HEADER_BYTES + length :], "little")
    if masked_crc(data) != data_crc:
        raise ValueError("the CRC of its data does not match")
    if data_crc != crc:
        raise OtherRecordError("its data is valid, but differs from the index")
    return data


def read_length(header: bytes, path: str, offset: int, preceding: int) -> int:
    """Returns the length in the header of a record. Raises `SourceError`."""
    length = int.from_bytes(header[:8], "little")
    if len(header) >= HEADER_BYTES and masked_crc(header[:8]) == int.from_bytes(
        header[8:HEADER_BYTES], "little"
    ):
        if length <= _MAX_LENGTH:
            return length
        text = f"{path}: the record at byte {offset} has {length} bytes; the maximum is 4 GiB - 1"
    elif offset == 0 and (compression := _compression(header)):
        text = (
            f"{path} is compressed with {compression}, so it has no random access; unpack it: "
            f"{_UNPACK[compression]} < OLD > NEW, or serve it in its order by a source dataset: "
            f"tf.data.TFRecordDataset(FILES, {compression!r})"
        )
    elif offset == 0:
        text = f"{path} is not a TFRecord file, or its first record is corrupt"
    else:
        text = (
            f"{path} is corrupt at byte {offset}: the CRC of a record's length does not match; "
            f"{preceding} whole records precede it, and no record after it can be located"
        )
    raise SourceError(text, file=path, offset=offset)


def _compression(header: bytes) -> str:
    """Returns the compression of a TensorFlow file with this header; empty for none."""
    if header[:2] == b"\x1f\x8b":
        return "GZIP"
    # The method is deflate, and the number in both bytes is a multiple of 31.
    is_zlib = header[:1] == b"\x78" and int.from_bytes(header[:2], "big") % 31 == 0
    return "ZLIB" if is_zlib else ""


def scan_records(
    handle: FileHandle,
    path: str,
    size: int,
    on_position: Callable[[int], None],
    *,
    verify: bool = False,
) -> FileRecords:
    """Returns the whole records of a file and calls `on_position` with the bytes scanned. With
    `verify`, reads all data to find damaged records. Raises `SourceError` for a corrupt length,
    since no record after it can be located."""
    lengths, crcs, actual = array("I"), array("I"), array("I")
    # The footer of one record and the header of the next are adjacent, so each record takes one
    # read. The first read begins before the file, with four made-up bytes as a footer.
    offset = -FOOTER_BYTES
    while offset + FRAME_BYTES <= size:
        skips = not verify and bool(lengths) and lengths[-1] > _SKIP_THRESHOLD
        window = _read_window(handle, path, offset, size, skips=skips and not is_remote(path))
        position, unpack, crc_of = 0, _FOOTER_AND_HEADER.unpack_from, masked_crc
        last = len(window) - FRAME_BYTES
        while position <= last:
            data_crc, length, length_crc = unpack(window, position)
            header = window[position + 4 : position + 12]
            if crc_of(header) != length_crc or length > _MAX_LENGTH:
                header = window[position + 4 : position + FRAME_BYTES]
                read_length(header, path, offset + position + FOOTER_BYTES, len(lengths))
            crcs.append(data_crc)
            lengths.append(length)
            position += FRAME_BYTES
            if verify:
                data = window[position : position + length]
                actual.append(_data_crc(handle, data, offset + position, length))
            position += length
        offset += position
        on_position(min(offset, size))
    if offset + FOOTER_BYTES > size:
        lengths.pop()
    elif lengths:
        crcs.append(int.from_bytes(handle.read(offset, FOOTER_BYTES), "little"))
    stored = np.array(crcs, np.uint32)[1:]
    damaged = None
    if verify:
        verified = np.array(actual, np.uint32)[: len(stored)]
        damaged = np.flatnonzero(verified != stored).astype(np.int64)
    return FileRecords(np.array(lengths, np.uint32), stored, damaged)


def _data_crc(handle: FileHandle, data: bytes, offset: int, length: int) -> int:
    """Returns the masked CRC of a record's data, which starts at the offset with `data`."""
    crc, done = google_crc32c.value(data), len(data)
    while done < length:
        data = handle.read(offset + done, min(_SCAN_WINDOW, length - done))
        if not data:
            break  # The file ends inside the record.
        crc, done = google_crc32c.extend(crc, data), done + len(data)
    return _mask(crc)


def _read_window(handle: FileHandle, path: str, offset: int, size: int, *, skips: bool) -> bytes:
    count = min(_SKIP_WINDOW if skips else _SCAN_WINDOW, size - offset)
    before = max(0, -offset)
    window = bytes(before) + handle.read(offset + before, count - before)
    if len(window) < FRAME_BYTES:
        raise SourceError(f"{path} became shorter while it was indexed", file=path)
    return window
