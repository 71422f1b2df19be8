"""The bytes of StreamBatches: how a batch becomes messages, and messages a batch.

Chunks carry nearly all bytes, so they are written and read by hand, to the protobuf encoding
that proto/infeed/v1/stream.proto fixes: the payload never passes through a protobuf object.

    7A <length> 0D <crc32, 4 bytes LE> 12 <length> <data>

Everything else is small and goes through the generated classes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from infeed.errors import ProtocolError
from infeed.spec import BYTES, Array, FieldSpec, Spec, numpy_dtype
from infeed.v1 import stream_pb2

CHUNK_BYTES = 1 << 20
"""The data of one chunk: under gRPC's default limit of 4 MiB, so a peer with default options can
read any batch, and large enough that the cost of a message does not count."""

ALIGNMENT = 64
"""Bytes. Where fields begin, so that frameworks can take an array without a copy."""

MAX_PAYLOAD_BYTES = 1 << 36
"""A header that announces more is taken for damaged, before any memory is set aside for it."""

_CHUNK_TAG = 0x7A
_CRC_TAG = 0x0D
_DATA_TAG = 0x12


@dataclass(frozen=True)
class EncodedBatch:
    """A batch as it will travel: its header, and its fields' bytes with where each lies."""

    header: stream_pb2.BatchHeader
    parts: tuple[tuple[int, memoryview], ...]

    def frames(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The messages, in order: the header, then the chunks."""
        yield stream_pb2.StreamBatchesResponse(header=self.header).SerializeToString()
        for pieces in _cut(self.parts, self.header.payload_size, chunk_bytes):
            yield encode_chunk(pieces)


def encode_batch(
    request_id: int,
    start: int,
    epoch: int,
    spec: Spec,
    arrays: dict[str, Array],
    sample_ids: Array,
    mask: Array,
) -> EncodedBatch:
    """A batch ready to send; numbers are not copied, byte strings are laid end to end."""
    header = stream_pb2.BatchHeader(request_id=request_id, start=start, epoch=epoch)
    header.sample_ids.extend(sample_ids.tolist())
    if not mask.all():
        header.mask.extend(mask.tolist())
    parts: list[tuple[int, memoryview]] = []
    end = 0
    for field in spec:
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        size = 0
        for view in _views(field, arrays[field.name]):
            parts.append((offset + size, view))
            size += view.nbytes
        header.layouts.add(offset=offset, size=size)
        end = offset + size
    header.payload_size = end
    return EncodedBatch(header, tuple(parts))


def decode_batch(header: stream_pb2.BatchHeader, payload: Array, spec: Spec) -> dict[str, Array]:
    """The fields as views of the payload (uint8); byte strings are copied out."""
    slots = len(header.sample_ids)
    if len(header.layouts) != len(spec):
        raise ProtocolError(f"a batch of {len(header.layouts)} fields, where {len(spec)} were told")
    arrays: dict[str, Array] = {}
    for field, layout in zip(spec, header.layouts, strict=True):
        if not 0 <= layout.offset <= layout.offset + layout.size <= payload.nbytes:
            raise ProtocolError(
                f"field {field.name!r} at [{layout.offset}, +{layout.size}) lies outside of a "
                f"payload of {payload.nbytes} bytes"
            )
        if layout.offset % ALIGNMENT:
            raise ProtocolError(f"field {field.name!r} at {layout.offset} is not aligned")
        data = payload[layout.offset : layout.offset + layout.size]
        arrays[field.name] = _decode_field(field, data, slots)
    return arrays


def new_payload(size: int) -> Array:
    """An aligned, uninitialised buffer for a payload of that many bytes."""
    if not 0 <= size <= MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a payload of {size} bytes; at most {MAX_PAYLOAD_BYTES} make sense")
    raw = np.empty(size + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + size]


def encode_chunk(pieces: Sequence[bytes | memoryview]) -> bytes:
    """One chunk message that carries the pieces end to end."""
    size = crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
        size += len(piece)
    data_head = bytes((_DATA_TAG,)) + _varint(size)
    body = 5 + len(data_head) + size
    head = bytes((_CHUNK_TAG,)) + _varint(body) + bytes((_CRC_TAG,)) + struct.pack("<I", crc)
    return b"".join((head, data_head, *pieces))


def read_chunk(message: bytes) -> memoryview | None:
    """The checked data of a chunk message; None when the message is no chunk.

    Takes the fixed form apart without a copy, and any other valid encoding of a chunk through
    protobuf. Raises `ProtocolError` when the checksum does not match.
    """
    if not message or message[0] != _CHUNK_TAG:
        return None
    data, crc = _split_chunk(message)
    if zlib.crc32(data) != crc:
        raise ProtocolError(f"a chunk of {len(data)} bytes does not match its checksum")
    return data


def parse(message: bytes) -> stream_pb2.StreamBatchesResponse:
    """Any message but a chunk."""
    try:
        return stream_pb2.StreamBatchesResponse.FromString(message)
    except Exception as error:  # DecodeError has no public home that all protobuf versions share
        raise ProtocolError(f"a message of {len(message)} bytes that cannot be parsed") from error


def _split_chunk(message: bytes) -> tuple[memoryview, int]:
    view = memoryview(message)
    try:
        body, at = _read_varint(view, 1)
        if at + body == len(view) and view[at] == _CRC_TAG and view[at + 5] == _DATA_TAG:
            size, begin = _read_varint(view, at + 6)
            if begin + size == len(view):
                return view[begin:], struct.unpack_from("<I", view, at + 1)[0]
    except (IndexError, struct.error):
        pass
    chunk = parse(message).chunk
    return memoryview(chunk.data), chunk.crc32


def _cut(
    parts: Sequence[tuple[int, memoryview]], total: int, chunk_bytes: int
) -> Iterator[list[bytes | memoryview]]:
    """Cuts parts at given offsets, with zeros between them, into runs of `chunk_bytes`."""
    pieces: list[bytes | memoryview] = []
    room = chunk_bytes
    for piece in _without_gaps(parts, total):
        rest = memoryview(piece)
        while rest:
            pieces.append(rest[:room])
            taken = len(pieces[-1])
            rest, room = rest[taken:], room - taken
            if not room:
                yield pieces
                pieces, room = [], chunk_bytes
    if pieces:
        yield pieces


def _without_gaps(
    parts: Sequence[tuple[int, memoryview]], total: int
) -> Iterator[bytes | memoryview]:
    at = 0
    for offset, view in parts:
        if offset > at:
            yield bytes(offset - at)
        yield view
        at = offset + len(view)
    if total > at:
        yield bytes(total - at)


def _views(field: FieldSpec, array: Array) -> list[memoryview]:
    if field.data_type != BYTES:
        contiguous = np.ascontiguousarray(array)
        return [contiguous.reshape(-1).view(np.uint8).data] if contiguous.size else []
    strings = [bytes(item) for item in array.reshape(-1)]
    offsets = np.zeros(len(strings) + 1, "<u8")
    np.cumsum([len(item) for item in strings], out=offsets[1:])
    return [offsets.view(np.uint8).data, memoryview(b"".join(strings))]


def _decode_field(field: FieldSpec, data: Array, slots: int) -> Array:
    shape = (slots, *field.shape)
    if field.data_type == BYTES:
        return _decode_strings(field, data, shape)
    expected = slots * (field.sample_bytes or 0)
    if data.nbytes != expected:
        raise ProtocolError(f"field {field.name!r} has {data.nbytes} bytes, not {expected}")
    return data.view(numpy_dtype(field.data_type)).reshape(shape)


def _decode_strings(field: FieldSpec, data: Array, shape: tuple[int, ...]) -> Array:
    count = shape[0] * field.elements
    table = (count + 1) * 8
    if data.nbytes < table:
        raise ProtocolError(f"field {field.name!r} has no room for the lengths of {count} strings")
    offsets = data[:table].view("<u8").astype(np.int64)
    body = data[table:].tobytes()
    if offsets[0] != 0 or offsets[-1] != len(body) or (np.diff(offsets) < 0).any():
        raise ProtocolError(f"field {field.name!r} has string offsets that make no sense")
    strings = np.empty(count, object)
    bounds = offsets.tolist()
    for index, (begin, end) in enumerate(pairwise(bounds)):
        strings[index] = body[begin:end]
    return strings.reshape(shape)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


__all__ = [
    "ALIGNMENT",
    "CHUNK_BYTES",
    "EncodedBatch",
    "decode_batch",
    "encode_batch",
    "encode_chunk",
    "new_payload",
    "parse",
    "read_chunk",
]
