"""How a batch becomes messages, and messages a batch: a header, then its payload in chunks.

The payload holds the fields one after the other, each at a multiple of 64 bytes. Only the header
and what else is small goes through the generated classes; chunk.py has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from infeed.buffers import ALIGNMENT
from infeed.chunk import CHUNK_BYTES, encode_chunk
from infeed.errors import ProtocolError
from infeed.spec import BYTES, Array, FieldSpec, Spec, numpy_dtype
from infeed.v1 import stream_pb2

MAX_PAYLOAD_BYTES = 1 << 36
"""A header that announces more is taken for damaged, before any memory is set aside for it."""


@dataclass(frozen=True)
class EncodedBatch:
    """A batch as it will travel: its header, and its fields' bytes with where each lies."""

    header: stream_pb2.BatchHeader
    parts: tuple[tuple[int, memoryview], ...]

    def frames(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[bytes | memoryview, ...]]:
        """The messages in pieces, in order: the header, then the chunks."""
        yield (stream_pb2.StreamBatchesResponse(header=self.header).SerializeToString(),)
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
    position_count: int | None = None,
) -> EncodedBatch:
    """A batch ready to send; numbers are not copied, byte strings are laid end to end."""
    header = stream_pb2.BatchHeader(
        request_id=request_id, start=start, epoch=epoch, position_count=position_count or 0
    )
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
    """The fields as views of the payload (uint8); byte strings are copied out.

    Fields lie in the payload as they do in the spec, and no byte belongs to two of them: what a
    checksum has told to be right must not come out as another field.
    """
    slots = len(header.sample_ids)
    if len(header.layouts) != len(spec):
        raise ProtocolError(f"a batch of {len(header.layouts)} fields, where {len(spec)} were told")
    arrays: dict[str, Array] = {}
    end = 0
    for field, layout in zip(spec, header.layouts, strict=True):
        if not end <= layout.offset <= layout.offset + layout.size <= payload.nbytes:
            raise ProtocolError(
                f"field {field.name!r} at [{layout.offset}, +{layout.size}) lies outside of "
                f"[{end}, {payload.nbytes}), what the fields before it leave of the payload"
            )
        end = layout.offset + layout.size
        if layout.offset % ALIGNMENT:
            raise ProtocolError(f"field {field.name!r} at {layout.offset} is not aligned")
        data = payload[layout.offset : layout.offset + layout.size]
        arrays[field.name] = _decode_field(field, data, slots)
    return arrays


def check_payload_size(size: int) -> None:
    """Raises `ProtocolError` for a size that makes no sense."""
    if not 0 <= size <= MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a payload of {size} bytes; at most {MAX_PAYLOAD_BYTES} make sense")


def parse(message: bytes) -> stream_pb2.StreamBatchesResponse:
    """Any message, by the generated classes."""
    try:
        return stream_pb2.StreamBatchesResponse.FromString(message)
    except Exception as error:  # DecodeError has no public home that all protobuf versions share
        raise ProtocolError(f"a message of {len(message)} bytes that cannot be parsed") from error


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
    offsets = data[:table].view("<u8")
    body = data[table:].tobytes()
    # Compared, not subtracted: differences of such numbers can wrap.
    rises = bool((offsets[:-1] <= offsets[1:]).all())
    if offsets[0] != 0 or offsets[-1] != len(body) or not rises:
        raise ProtocolError(f"field {field.name!r} has string offsets that make no sense")
    strings = np.empty(count, object)
    bounds = offsets.tolist()
    for index, (begin, end) in enumerate(pairwise(bounds)):
        strings[index] = body[begin:end]
    return strings.reshape(shape)


__all__ = [
    "ALIGNMENT",
    "MAX_PAYLOAD_BYTES",
    "EncodedBatch",
    "check_payload_size",
    "decode_batch",
    "encode_batch",
    "parse",
]
