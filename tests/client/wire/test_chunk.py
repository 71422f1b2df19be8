"""Chunk messages equal what protobuf makes, and nothing else is parsed as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.v1 import stream_pb2
from infeed.wire.chunk import CHUNK_BYTES, MAX_HEAD_BYTES, checksum, encode_chunk, parse_head


def encode(pieces: list[Any]) -> bytes:
    return b"".join(encode_chunk(pieces))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x2D06800538D394C2),
        (b"infeed", 0x132C4ABE5BEB94F1),
        (bytes(range(256)) * 100, 0x98276B6025D637AE),
    ],
)
def test_checksum_is_xxh3_with_seed_0(data: bytes, expected: int) -> None:
    assert checksum(data) == expected


@pytest.mark.parametrize(
    "size", [0, 1, 119, 120, 127, 128, 16_370, 16_384, CHUNK_BYTES, 2 << 20, 1 << 22]
)
def test_round_trip(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    message = encode([data])
    head = parse_head(message[:MAX_HEAD_BYTES], len(message))
    assert head is not None
    assert (head.data_size, head.checksum) == (size, xxhash.xxh3_64_intdigest(data))
    assert message[head.data_offset :] == data
    assert head.data_offset <= MAX_HEAD_BYTES


@examples(100)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_encoding_equals_protobuf(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    views = [memoryview(piece) for piece in pieces]
    message = encode(views)
    parsed = stream_pb2.StreamBatchesResponse.FromString(message)
    assert parsed.WhichOneof("event") == "chunk"
    assert (parsed.chunk.data, parsed.chunk.checksum) == (data, xxhash.xxh3_64_intdigest(data))
    if data:  # protobuf omits empty fields
        assert parsed.SerializeToString(deterministic=True) == message


def test_other_encodings_are_left_to_protobuf() -> None:
    digest = encode([b"abcd"])[2:11]
    swapped = bytes((0x7A, 15, 0x12, 4)) + b"abcd" + digest
    long_length = bytes((0x7A, 16)) + digest + bytes((0x12, 0x84, 0x00)) + b"abcd"
    without_data = bytes((0x7A, 9)) + digest
    without_checksum = bytes((0x7A, 6, 0x12, 4)) + b"abcd"
    for message in (swapped, without_data, without_checksum):
        assert parse_head(message[:MAX_HEAD_BYTES], len(message)) is None
        assert stream_pb2.StreamBatchesResponse.FromString(message).HasField("chunk")
    head = parse_head(long_length, len(long_length))  # also a valid varint
    assert head is not None
    assert long_length[head.data_offset :] == b"abcd"


@examples(500)
@given(st.binary(max_size=40))
def test_noise_is_no_chunk_unless_protobuf_agrees(noise: bytes) -> None:
    for message in (noise, b"\x7a" + noise, bytes((0x7A, len(noise))) + noise):
        head = parse_head(message[:MAX_HEAD_BYTES], len(message))
        if head is not None:
            assert head.data_offset + head.data_size == len(message)
            parsed = stream_pb2.StreamBatchesResponse.FromString(message)
            assert parsed.chunk.data == message[head.data_offset :]
            assert parsed.chunk.checksum == head.checksum
