"""Chunks: the messages that carry nearly all bytes, written and read by hand.

To the protobuf encoding that proto/infeed/v1/stream.proto fixes, so that the payload never passes
through a protobuf object:

    7A <length> 0D <checksum, 4 bytes LE> 12 <length> <data>

The head, all before the data, is a few bytes; who reads one knows where the data is to go, and
can have the network put it there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from infeed.checksum import checksum

CHUNK_BYTES = 1 << 20
"""The data of one chunk: under gRPC's default limit of 4 MiB, so a peer with default options can
read any batch, and large enough that the cost of a message does not count."""

HEAD_BYTES = 24
"""No head is longer."""

_CHUNK_TAG = 0x7A
_CHECKSUM_TAG = 0x0D
_DATA_TAG = 0x12

_EMPTY = np.empty(0, np.uint8)


@dataclass(frozen=True)
class ChunkHead:
    """What stands before the data of a chunk."""

    checksum: int
    data_begin: int
    """Bytes of the message before the data."""
    data_bytes: int


def encode_chunk(
    pieces: Sequence[bytes | memoryview],
) -> tuple[bytes, bytes | memoryview]:
    """One chunk message that carries the pieces end to end: its head, and its data uncopied."""
    if len(pieces) > 1:
        # Sums need the words in one place. It is the seldom case: a chunk where fields meet.
        pieces = [b"".join(pieces)]
    data = pieces[0] if pieces else b""
    size = len(data)
    data_head = bytes((_DATA_TAG,)) + _varint(size)
    body = 5 + len(data_head) + size
    told = struct.pack("<I", checksum(np.frombuffer(data, np.uint8) if size else _EMPTY))
    head = bytes((_CHUNK_TAG,)) + _varint(body) + bytes((_CHECKSUM_TAG,)) + told
    return head + data_head, data


def read_head(begin: bytes | bytearray, size: int) -> ChunkHead | None:
    """The head of a chunk, from the first 24 bytes (or all) of a message of `size` bytes.

    None when the message is no chunk, or one in another valid encoding: then protobuf reads it.
    """
    try:
        if begin[0] != _CHUNK_TAG:
            return None
        body, at = _read_varint(begin, 1)
        if at + body != size or begin[at] != _CHECKSUM_TAG or begin[at + 5] != _DATA_TAG:
            return None
        data_bytes, data_begin = _read_varint(begin, at + 6)
        if data_begin + data_bytes != size:
            return None
        return ChunkHead(struct.unpack_from("<I", begin, at + 1)[0], data_begin, data_bytes)
    except (IndexError, struct.error):
        return None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


__all__ = ["CHUNK_BYTES", "HEAD_BYTES", "ChunkHead", "encode_chunk", "read_head"]
