"""Chunk messages, which carry nearly all bytes, encoded and decoded without protobuf objects.

The encoding is protobuf's, as proto/infeed/v1/stream.proto defines it:

    7A <length> 09 <checksum, 8 bytes LE> 12 <length> <data>

A reader parses the head first, and then receives the data straight into the batch's memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

CHUNK_BYTES = 1 << 20
"""Data bytes of one chunk, below gRPC's default limit of 4 MiB; fewer cost more messages."""

MAX_HEAD_BYTES = 24
"""An upper bound of the size of a head."""

_CHUNK_TAG = 0x7A
_CHECKSUM_TAG = 0x09
_DATA_TAG = 0x12
_CHECKSUM_FORMAT = "<Q"
_CHECKSUM_END = 9
"""Offset of the data's tag in the body."""

checksum = xxhash.xxh3_64_intdigest
"""Returns the 64-bit XXH3 hash of a contiguous buffer: available in every language, and faster than
memory; CRC-32C is slower."""


@dataclass(frozen=True)
class ChunkHead:
    """The head of a chunk message: checksum, and offset and size of the data in bytes."""

    checksum: int
    data_offset: int
    data_size: int


def encode_chunk(
    pieces: Sequence[bytes | memoryview], *, has_checksum: bool = True
) -> tuple[bytes, bytes | memoryview]:
    """Encodes the concatenated pieces as a head and the data, which is not copied."""
    if len(pieces) > 1:
        # The checksum needs contiguous data. Few chunks hold more than one field.
        pieces = [b"".join(pieces)]
    data = pieces[0] if pieces else b""
    size = len(data)
    data_head = bytes((_DATA_TAG,)) + _encode_varint(size)
    body = _CHECKSUM_END + len(data_head) + size
    digest = struct.pack(_CHECKSUM_FORMAT, checksum(data) if has_checksum else 0)
    head = bytes((_CHUNK_TAG,)) + _encode_varint(body) + bytes((_CHECKSUM_TAG,)) + digest
    return head + data_head, data


def parse_head(prefix: bytes | bytearray, size: int) -> ChunkHead | None:
    """Parses the head of a chunk from the first 24 bytes (or all) of a message of `size` bytes.
    None: another message, or a chunk in another valid encoding."""
    try:
        if prefix[0] != _CHUNK_TAG:
            return None
        body, offset = _parse_varint(prefix, 1)
        if offset + body != size:
            return None
        if prefix[offset] != _CHECKSUM_TAG or prefix[offset + _CHECKSUM_END] != _DATA_TAG:
            return None
        data_size, data_offset = _parse_varint(prefix, offset + _CHECKSUM_END + 1)
        if data_offset + data_size != size:
            return None
        (digest,) = struct.unpack_from(_CHECKSUM_FORMAT, prefix, offset + 1)
        return ChunkHead(digest, data_offset, data_size)
    except (IndexError, struct.error):
        return None


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parse_varint(data: bytes | bytearray, offset: int) -> tuple[int, int]:
    """Returns the value and the offset after it."""
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
