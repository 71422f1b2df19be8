"""Encoding of a batch as messages, a header and then payload chunks, and its decoding.

The payload holds the fields one after the other, each at a multiple of 64 bytes. Only the header
and other small messages use the generated protobuf classes; chunk.py encodes the chunks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from infeed.shared.errors import ProtocolError
from infeed.shared.spec import BYTES, Array, FieldSpec, Spec, numpy_dtype
from infeed.v1 import stream_pb2
from infeed.wire.buffer_pool import ALIGNMENT
from infeed.wire.chunk import CHUNK_BYTES, checksum, encode_chunk

MAX_PAYLOAD_BYTES = 1 << 36
"""A header that states a larger size is refused as corrupt before memory is allocated."""


class Payload:
    """The fields of a batch as sent: numbers are not copied, byte strings are joined."""

    def __init__(self, spec: Spec, arrays: Mapping[str, Array], *, shared: bool = False) -> None:
        """A `shared` payload keeps its chunk messages, with checksums, for several streams."""
        self.spec = spec
        self.layouts: list[tuple[int, int]] = []
        """Offset and size of each field, in bytes."""
        self.size = 0
        self._parts: list[memoryview] = []
        self._messages: list[bytes] | None = None
        for field in spec:
            padding = -self.size % ALIGNMENT
            views = _encode_field(field, arrays[field.name])
            size = sum(view.nbytes for view in views)
            self._parts += (memoryview(bytes(padding)), *views)
            self.layouts.append((self.size + padding, size))
            self.size += padding + size
        if shared:
            self._messages = [b"".join(chunk) for chunk in self.chunks()]

    def chunks(
        self, chunk_bytes: int = CHUNK_BYTES, *, has_checksums: bool = True
    ) -> Iterator[tuple[bytes | memoryview, ...]]:
        """Returns the messages of the chunks, each in pieces."""
        if self._messages is not None:
            return ((message,) for message in self._messages)
        encode = partial(encode_chunk, has_checksum=has_checksums)
        return map(encode, _split_chunks(self._parts, chunk_bytes))

    def copy_into(self, memory: Array) -> None:
        """Copies the payload to the beginning of `memory`, uint8."""
        begin = 0
        for part in self._parts:
            end = begin + len(part)
            memory[begin:end] = np.frombuffer(part, np.uint8)  # without the interpreter's lock
            begin = end


_NO_PAYLOAD = Payload((), {})


@dataclass(frozen=True)
class EncodedBatch:
    """A batch ready to send: its header and its payload."""

    header: stream_pb2.BatchHeader
    payload: Payload
    has_checksums: bool = True
    """Whether the payload has checksums."""

    def message_count(self, chunk_bytes: int = CHUNK_BYTES) -> int:
        return 1 + -(-self.payload.size // chunk_bytes)

    def in_block(self, request: stream_pb2.BatchRequest, block: int, memory: Array) -> EncodedBatch:
        """Moves the payload into a block of shared memory, and returns the batch without it."""
        self.payload.copy_into(memory)
        header = self.header
        header.block = block
        if self.has_checksums:
            header.payload_checksum = checksum(memory[: self.payload.size].data)
        header.checksum = answer_checksum(request, header, self.payload.spec)
        return EncodedBatch(header, _NO_PAYLOAD)

    def messages(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[bytes | memoryview, ...]]:
        """Yields the messages in order, the header and then the chunks, each in pieces."""
        yield (stream_pb2.StreamBatchesResponse(header=self.header).SerializeToString(),)
        yield from self.payload.chunks(chunk_bytes, has_checksums=self.has_checksums)


def encode_batch(
    request: stream_pb2.BatchRequest,
    start: int,
    epoch: int,
    payload: Payload,
    sample_ids: Array,
    mask: Array,
    position_count: int | None = None,
    *,
    has_checksums: bool = True,
) -> EncodedBatch:
    """Encodes the answer to a request."""
    header = stream_pb2.BatchHeader(
        request_id=request.request_id,
        start=start,
        epoch=epoch,
        position_count=position_count or 0,
        payload_size=payload.size,
    )
    header.sample_ids.extend(sample_ids.tolist())
    if not mask.all():
        header.mask.extend(mask.tolist())
    for offset, size in payload.layouts:
        header.layouts.add(offset=offset, size=size)
    header.checksum = answer_checksum(request, header, payload.spec)
    return EncodedBatch(header, payload, has_checksums)


def encode_end(request: stream_pb2.BatchRequest, position_count: int) -> stream_pb2.EndOfData:
    """Returns the answer to a request past the end of the data."""
    end = stream_pb2.EndOfData(request_id=request.request_id, position_count=position_count)
    end.checksum = answer_checksum(request, end, ())
    return end


def decode_batch(header: stream_pb2.BatchHeader, payload: Array, spec: Spec) -> dict[str, Array]:
    """Returns the fields as views of the payload (uint8); byte strings are copied. Fields do not
    overlap: bytes that a checksum has verified must not be decoded as another field."""
    slots = len(header.sample_ids)
    if len(header.layouts) != len(spec):
        raise ProtocolError(f"a batch of {len(header.layouts)} fields instead of {len(spec)}")
    arrays: dict[str, Array] = {}
    end = 0
    for field, layout in zip(spec, header.layouts, strict=True):
        if not end <= layout.offset <= layout.offset + layout.size <= payload.nbytes:
            raise ProtocolError(
                f"field {field.name!r} at [{layout.offset}, +{layout.size}) lies outside of "
                f"[{end}, {payload.nbytes})"
            )
        end = layout.offset + layout.size
        if layout.offset % ALIGNMENT:
            raise ProtocolError(f"field {field.name!r} at {layout.offset} is not aligned")
        data = payload[layout.offset : layout.offset + layout.size]
        arrays[field.name] = _decode_field(field, data, slots)
    return arrays


def payload_bytes(spec: Spec, batch_size: int) -> int | None:
    """Returns the payload bytes of one batch; None if byte strings make them vary."""
    total = 0
    for field in spec:
        if field.sample_bytes is None:
            return None
        total = -(-total // ALIGNMENT) * ALIGNMENT
        total += batch_size * field.sample_bytes
    return total


def answer_checksum(
    request: stream_pb2.BatchRequest,
    answer: stream_pb2.BatchHeader | stream_pb2.EndOfData,
    spec: Spec,
) -> int:
    """Returns the checksum of an answer without its payload, as stream.proto defines it."""
    data = struct.pack(
        "<Q5q",
        request.request_id,
        request.start,
        request.count,
        request.min_position_count,
        request.step_end,
        answer.position_count,
    )
    if isinstance(answer, stream_pb2.BatchHeader):
        data += _header_bytes(answer) + _spec_bytes(spec)
        if answer.block:
            data += struct.pack("<qQ", answer.block, answer.payload_checksum)
    return checksum(data)


def _header_bytes(header: stream_pb2.BatchHeader) -> bytes:
    numbers = [header.epoch, header.payload_size]
    for layout in header.layouts:
        numbers += (layout.offset, layout.size)
    slots = len(header.sample_ids)
    mask = bytes(header.mask) if header.mask else b"\1" * slots
    return _pack(numbers) + np.array(header.sample_ids, "<i8").tobytes() + mask


@lru_cache(maxsize=16)
def _spec_bytes(spec: Spec) -> bytes:
    data = b""
    for field in spec:
        message = field.to_proto()
        data += _pack([message.data_type, *message.shape]) + message.name.encode()
    return data


def _pack(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def parse_response(message: bytes) -> stream_pb2.StreamBatchesResponse:
    """Parses any message with the generated class. Raises `ProtocolError`."""
    try:
        return stream_pb2.StreamBatchesResponse.FromString(message)
    except Exception as error:  # DecodeError has no path common to all protobuf versions
        raise ProtocolError(f"a message of {len(message)} bytes that cannot be parsed") from error


def _split_chunks(parts: Sequence[memoryview], chunk_bytes: int) -> Iterator[list[memoryview]]:
    pieces: list[memoryview] = []
    free = chunk_bytes
    for part in parts:
        rest = part
        while rest:
            pieces.append(rest[:free])
            size = len(pieces[-1])
            rest, free = rest[size:], free - size
            if not free:
                yield pieces
                pieces, free = [], chunk_bytes
    if pieces:
        yield pieces


def _encode_field(field: FieldSpec, array: Array) -> list[memoryview]:
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
    table_bytes = (count + 1) * 8
    if data.nbytes < table_bytes:
        raise ProtocolError(f"field {field.name!r} is too small for the offsets of {count} strings")
    offsets = data[:table_bytes].view("<u8")
    content = data[table_bytes:].tobytes()
    # Compared, not subtracted: differences of unsigned numbers wrap.
    is_sorted = bool((offsets[:-1] <= offsets[1:]).all())
    if offsets[0] != 0 or offsets[-1] != len(content) or not is_sorted:
        raise ProtocolError(f"field {field.name!r} has invalid string offsets")
    strings = np.empty(count, object)
    for index, (begin, end) in enumerate(pairwise(offsets.tolist())):
        strings[index] = content[begin:end]
    return strings.reshape(shape)
