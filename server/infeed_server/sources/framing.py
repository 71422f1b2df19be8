"""TFRecord framing: how records lie in a file, and how a file's records are found.

record = length: uint64 LE · masked CRC of length · data · masked CRC of data
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable

import google_crc32c
import numpy as np
import numpy.typing as npt

from infeed.errors import SourceError
from infeed_server.sources.files import is_remote
from infeed_server.sources.handles import Handle

HEADER = 12
"""Bytes before a record's data."""
FOOTER = 4
"""Bytes after it."""
FRAME = HEADER + FOOTER

_SCAN_WINDOW = 8 << 20
_HOP_WINDOW = 4 << 10
_HOP_OVER = 64 << 10
"""Bytes. Data longer than this is stepped over: one small read costs less than reading it all."""

_LENGTH = struct.Struct("<QI")
_JOINT = struct.Struct("<IQI")

Words = npt.NDArray[np.uint32]


def masked_crc(data: bytes) -> int:
    """CRC-32C as TFRecord stores it: rotated, so that a CRC of CRCs stays a good one."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """One record as it lies in a file."""
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, struct.pack("<I", masked_crc(length)), data, struct.pack("<I", masked_crc(data)))
    )


def unframe(record: bytes, length: int) -> bytes:
    """The data of one framed record. Raises `ValueError` that says what is wrong with it."""
    if len(record) < length + FRAME:
        raise ValueError(f"the file ends inside it, after {len(record)} of {length + FRAME} bytes")
    stored, length_crc = _LENGTH.unpack_from(record)
    if masked_crc(record[:8]) != length_crc:
        raise ValueError("the CRC of its length does not match")
    if stored != length:
        raise ValueError(f"its length is {stored} where the index has {length}")
    data = record[HEADER : HEADER + length]
    (data_crc,) = struct.unpack_from("<I", record, HEADER + length)
    if masked_crc(data) != data_crc:
        raise ValueError("the CRC of its data does not match")
    return data


def scan(
    handle: Handle, path: str, size: int, advance: Callable[[int], None]
) -> tuple[Words, Words]:
    """The data lengths and stored data CRCs of a file's whole records, in order.

    The lengths and their frames add up to `size`, or to less when the file ends inside a record.
    `advance` is called with the bytes gone past. Raises `SourceError` for a length that is corrupt:
    nothing behind it can be found.
    """
    lengths, crcs = array("I"), array("I")
    # A joint is the data CRC of one record and the header of the next, which lie together, so
    # that a step needs one read. The first starts before the file, in four bytes that are made up.
    at = -FOOTER
    while at + FRAME <= size:
        window = _window(handle, path, at, size, lengths[-1] if lengths else 0)
        step, joint, crc_of = 0, _JOINT.unpack_from, masked_crc
        last = len(window) - FRAME
        while step <= last:
            data_crc, length, length_crc = joint(window, step)
            if crc_of(window[step + 4 : step + 12]) != length_crc:
                raise _corrupt(window[step + 4 :], path, at + step + FOOTER, len(lengths))
            if length > 0xFFFFFFFF:
                raise SourceError(
                    f"{path}: the record at byte {at + step + FOOTER} has {length} bytes; "
                    "the most is 4 GiB - 1",
                    file=path,
                    offset=at + step + FOOTER,
                )
            crcs.append(data_crc)
            lengths.append(length)
            step += FRAME + length
        advance(min(step, size - at))
        at += step
    if at + FOOTER > size:
        lengths.pop()
    elif lengths:
        crcs.append(int.from_bytes(handle.read(at, FOOTER), "little"))
    return np.array(lengths, np.uint32), np.array(crcs, np.uint32)[1:]


def _window(handle: Handle, path: str, at: int, size: int, previous: int) -> bytes:
    hop = previous > _HOP_OVER and not is_remote(path)
    want = min(_HOP_WINDOW if hop else _SCAN_WINDOW, size - at)
    window = handle.read(at, want) if at >= 0 else bytes(-at) + handle.read(0, want + at)
    if len(window) < FRAME:
        raise SourceError(f"{path} became shorter while it was indexed", file=path)
    return window


def _corrupt(header: bytes, path: str, offset: int, before: int) -> SourceError:
    if offset == 0 and header[:2] == b"\x1f\x8b":
        text = (
            f"{path} is compressed with GZIP, which has no random access; "
            f"unpack it first: gunzip {path}"
            if path.endswith(".gz")
            else f"{path} is compressed with GZIP, which has no random access; write it without "
            "compression, or unpack it: gunzip < OLD > NEW"
        )
    elif offset == 0:
        text = f"{path} is no TFRecord file, or its first record is corrupt"
    else:
        text = (
            f"{path} is corrupt at byte {offset}: the CRC of a record's length does not match; "
            f"{before} whole records precede it, and what follows cannot be found"
        )
    return SourceError(text, file=path, offset=offset)
