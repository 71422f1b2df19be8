"""Encoding and decoding of batches, also by the generated classes, and invalid layouts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.harness.examples import examples

from infeed.shared.errors import ProtocolError
from infeed.shared.spec import FieldSpec, Spec
from infeed.v1 import stream_pb2
from infeed.wire import batch as wire
from infeed.wire.buffer_pool import ALIGNMENT, BufferPool
from infeed.wire.chunk import MAX_HEAD_BYTES, checksum, parse_head

SLOTS = 3
number_types = st.sampled_from(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()  # noqa: SIM905
)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Spec, dict[str, Any]]:
    """Draws up to four fields of any type, including `bytes`, and their arrays."""
    spec, arrays = [], {}
    for index in range(draw(st.integers(1, 4))):
        name, shape = f"f{index}", draw(shapes)
        if draw(st.booleans()):
            data_type = draw(number_types)
            arrays[name] = draw(hnp.arrays(data_type, (SLOTS, *shape)))
        else:
            data_type = "bytes"
            count = SLOTS * int(np.prod(shape, dtype=int))
            strings = draw(st.lists(st.binary(max_size=9), min_size=count, max_size=count))
            array = np.empty(count, object)
            array[:] = strings
            arrays[name] = array.reshape(SLOTS, *shape)
        spec.append(FieldSpec(name, data_type, shape))
    return tuple(spec), arrays


def encode(spec: Spec, arrays: dict[str, Any], mask: Any = None) -> wire.EncodedBatch:
    ids = np.arange(7, 7 + SLOTS)
    mask = np.ones(SLOTS, bool) if mask is None else mask
    request = stream_pb2.BatchRequest(request_id=5)
    return wire.encode_batch(request, 40, 2, wire.Payload(spec, arrays), ids, mask)


def join(messages: Iterable[Sequence[Any]]) -> tuple[stream_pb2.BatchHeader, Any]:
    """Returns the header and the payload of a batch's messages."""
    first, *chunks = [b"".join(pieces) for pieces in messages]
    header = wire.parse_response(first).header
    payload = BufferPool().allocate(header.payload_size)
    end = 0
    for chunk in chunks:
        head = parse_head(chunk[:MAX_HEAD_BYTES], len(chunk))
        assert head is not None
        data = np.frombuffer(chunk[head.data_offset :], np.uint8)
        assert len(data) == head.data_size
        assert checksum(data) == head.checksum
        payload[end : end + len(data)] = data
        end += len(data)
    assert end == header.payload_size
    return header, payload


def assert_same(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].shape == array.shape
        assert actual[name].dtype == array.dtype
        np.testing.assert_array_equal(actual[name], array)


@examples(80)
@given(batches(), st.integers(1, 200))
def test_round_trip(batch: tuple[Spec, dict[str, Any]], chunk_bytes: int) -> None:
    spec, arrays = batch
    header, payload = join(encode(spec, arrays).messages(chunk_bytes))
    assert (header.request_id, header.start, header.epoch) == (5, 40, 2)
    assert list(header.sample_ids) == [7, 8, 9]
    assert not header.mask
    assert all(layout.offset % ALIGNMENT == 0 for layout in header.layouts)
    assert_same(wire.decode_batch(header, payload, spec), arrays)


@examples(40)
@given(batches(), st.integers(1, 200))
def test_generated_classes_decode_the_same(
    batch: tuple[Spec, dict[str, Any]], chunk_bytes: int
) -> None:
    spec, arrays = batch
    encoded = encode(spec, arrays)
    first, *rest = map(b"".join, encoded.messages(chunk_bytes))
    assert encoded.message_count(chunk_bytes) == 1 + len(rest)
    header = stream_pb2.StreamBatchesResponse.FromString(first).header
    chunks = [stream_pb2.StreamBatchesResponse.FromString(message) for message in rest]
    assert all(chunk.WhichOneof("event") == "chunk" for chunk in chunks)
    assert all(0 < len(chunk.chunk.data) <= chunk_bytes for chunk in chunks)
    payload = np.frombuffer(b"".join(chunk.chunk.data for chunk in chunks), np.uint8)
    assert_same(wire.decode_batch(header, payload, spec), arrays)
    # The hand-written encoding is protobuf's own.
    assert [chunk.SerializeToString(deterministic=True) for chunk in chunks] == rest


def test_bfloat16_and_strided_arrays() -> None:
    spec = (FieldSpec("x", "bfloat16", (2,)), FieldSpec("y", "int32", (2,)))
    x = np.arange(6).reshape(3, 2).astype(ml_dtypes.bfloat16)
    y = np.arange(6, dtype=np.int32).reshape(2, 3).T  # not contiguous
    header, payload = join(encode(spec, {"x": x, "y": y}).messages())
    assert_same(wire.decode_batch(header, payload, spec), {"x": x, "y": y})


def layouts(*pairs: tuple[int, int]) -> stream_pb2.BatchHeader:
    header = stream_pb2.BatchHeader(sample_ids=[1, 2])
    for offset, size in pairs:
        header.layouts.add(offset=offset, size=size)
    return header


X = FieldSpec("x", "int32")
TEXT = FieldSpec("text", "bytes")


@pytest.mark.parametrize(
    ("header", "field", "message"),
    [
        (layouts(), X, "0 fields instead of 1"),
        (layouts((0, 8), (64, 8)), X, "2 fields instead of 1"),
        (layouts((-64, 8)), X, "outside"),
        (layouts((0, -8)), X, "outside"),
        (layouts((1 << 40, 8)), X, "outside"),
        (layouts((0, 1 << 40)), X, "outside"),
        (layouts((3, 8)), X, "aligned"),
        (layouts((0, 12)), X, "12 bytes, not 8"),
        (layouts((0, 16)), TEXT, "too small for the offsets"),
    ],
)
def test_invalid_layouts_are_refused(
    header: stream_pb2.BatchHeader, field: FieldSpec, message: str
) -> None:
    with pytest.raises(ProtocolError, match=message):
        wire.decode_batch(header, np.zeros(128, np.uint8), (field,))


@pytest.mark.parametrize(
    "offsets",
    [
        [1, 1, 3],
        [0, 3, 2],
        [0, 1, 2],
        [0, 1, 1 << 40],
        [0, (1 << 64) - 1, 3],
        [0, (1 << 63) - 1, (1 << 64) - 2, 3],  # differences of signed numbers wrap
    ],
)
def test_invalid_string_offsets_are_refused(offsets: list[int]) -> None:
    payload = np.frombuffer(np.array(offsets, "<u8").tobytes() + b"abc", np.uint8)
    header = layouts((0, payload.nbytes))
    header.sample_ids[:] = range(len(offsets) - 1)
    with pytest.raises(ProtocolError, match=r"'text'.*invalid string offsets"):
        wire.decode_batch(header, payload, (TEXT,))
