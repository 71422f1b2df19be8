"""Messages of Arrow's stream format: where each record batch lies, without its columns."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from infeed_server.sources.arrow.fields import decoding
from infeed_server.storage.ranges import RangeReader

_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<II")
"""The continuation, and the bytes of the metadata; none at the end of the stream."""
_FIRST_READ = 4 << 10
"""Bytes of a message that are read at once: the prefix and most metadata."""
_MAX_METADATA = 64 << 20
_RECORD_BATCH = 3
_FILES_AT_ONCE = 64


class Message(NamedTuple):
    """A record batch: its file's number, its first byte, its bytes and its rows."""

    file: int
    begin: int
    size: int
    rows: int


class Stream(NamedTuple):
    """The messages of a file: schema and dictionaries as bytes, and the record batches."""

    head: bytes
    batches: list[Message]


def read_streams(ranges: RangeReader) -> Iterator[Stream]:
    """Yields the messages of each file, read at the same time: a request for each record batch.
    Raises `SourceError`."""
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        yield from pool.map(partial(_read_stream, ranges), range(len(ranges.files)))


def _read_stream(ranges: RangeReader, file: int) -> Stream:
    path, end = ranges.files[file]
    head, batches, begin = b"", [], 0
    with decoding(path, "it"):
        while begin < end.size:
            start = _read(ranges, file, begin, min(_FIRST_READ, end.size - begin))
            if not any(start[:4]):  # the end, as old versions wrote it
                break
            continuation, length = _PREFIX.unpack(start[: _PREFIX.size].ljust(_PREFIX.size, b"\0"))
            if continuation != _CONTINUATION or length > _MAX_METADATA:
                raise ValueError(f"no message of Arrow's stream format at byte {begin}")
            if not length and len(start) >= _PREFIX.size:
                break
            if not length or begin + _PREFIX.size + length > end.size:
                raise ValueError(f"it ends in the message at byte {begin}")
            if len(start) < _PREFIX.size + length:
                start = _read(ranges, file, begin, _PREFIX.size + length)
            kind, body, rows = _parse(start[_PREFIX.size : _PREFIX.size + length])
            size = _PREFIX.size + length + body
            if begin + size > end.size:
                raise ValueError(f"it ends in the message at byte {begin}")
            if kind == _RECORD_BATCH:
                batches.append(Message(file, begin, size, rows))
            elif batches:
                raise ValueError(f"its dictionaries change at byte {begin}, which is not read")
            else:
                head += start[:size] if len(start) >= size else _read(ranges, file, begin, size)
            begin += size
    return Stream(head, batches)


def _read(ranges: RangeReader, file: int, begin: int, size: int) -> bytes:
    place = (np.array([number], np.int64) for number in (file, begin, size))
    content: bytes = ranges.read(*place).tolist()[0]
    return content


def _parse(metadata: bytes) -> tuple[int, int, int]:
    """Returns the kind of a message, the bytes of its body, and the rows of a record batch, from
    Message.fbs. Raises `struct.error` for bytes that are no such table."""
    (message,) = struct.unpack_from("<I", metadata)
    (kind,) = struct.unpack_from("<B", metadata, _field(metadata, message, 1))
    body = rows = 0
    if place := _field(metadata, message, 3):
        (body,) = struct.unpack_from("<q", metadata, place)
    header = _field(metadata, message, 2)
    header += struct.unpack_from("<I", metadata, header)[0]
    if kind == _RECORD_BATCH and (place := _field(metadata, header, 0)):
        (rows,) = struct.unpack_from("<q", metadata, place)
    if body < 0 or rows < 0:
        raise ValueError(f"a message has a body of {body} bytes and {rows} rows")
    return kind, body, rows


def _field(metadata: bytes, table: int, number: int) -> int:
    """Returns the place of a field of a FlatBuffers table; 0 if it has its default."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if vtable < 0 or 4 + 2 * number >= struct.unpack_from("<H", metadata, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0
