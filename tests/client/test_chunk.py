"""Chunks by hand are what protobuf makes of them, and nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.checksum import checksum
from infeed.chunk import CHUNK_BYTES, HEAD_BYTES, encode_chunk, read_head
from infeed.v1 import stream_pb2


def of(data: bytes) -> int:
    return checksum(np.frombuffer(data, np.uint8))


def written(pieces: list[Any]) -> bytes:
    return b"".join(encode_chunk(pieces))


def test_the_data_is_not_copied() -> None:
    data = np.arange(1000, dtype=np.uint8)
    _, sent = encode_chunk([memoryview(data)])
    assert np.shares_memory(np.frombuffer(sent, np.uint8), data)


@pytest.mark.parametrize(
    "size", [0, 1, 119, 120, 127, 128, 16_370, 16_384, CHUNK_BYTES, 2 << 20, 1 << 22]
)
def test_what_is_written_is_read(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    message = written([data])
    head = read_head(message[:HEAD_BYTES], len(message))
    assert head is not None
    assert (head.data_bytes, head.checksum) == (size, of(data))
    assert message[head.data_begin :] == data
    assert head.data_begin <= HEAD_BYTES


@examples(100)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_it_is_what_protobuf_writes(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    views = [memoryview(piece) for piece in pieces]
    message = written(views)
    read = stream_pb2.StreamBatchesResponse.FromString(message)
    assert read.WhichOneof("event") == "chunk"
    assert (read.chunk.data, read.chunk.checksum) == (data, of(data))
    if data:  # protobuf leaves empty fields out
        assert read.SerializeToString(deterministic=True) == message


@examples(100)
@given(st.binary(max_size=300), st.integers(0, 400))
def test_a_part_is_never_taken_for_whole(data: bytes, cut: int) -> None:
    message = written([data])
    part = message[:cut]
    if part != message:
        assert read_head(part[:HEAD_BYTES], len(part)) is None
    assert read_head(message[: min(cut, 8)], len(message)) is None
    assert read_head(message[:HEAD_BYTES], len(message) + 1) is None


def test_other_messages_are_no_chunks() -> None:
    heartbeat = stream_pb2.StreamBatchesResponse(heartbeat=stream_pb2.Heartbeat())
    header = stream_pb2.StreamBatchesResponse(header=stream_pb2.BatchHeader(request_id=1))
    for message in (b"", heartbeat.SerializeToString(), header.SerializeToString()):
        assert read_head(message[:HEAD_BYTES], len(message)) is None


def test_other_encodings_are_left_to_protobuf() -> None:
    told = written([b"abcd"])[2:7]
    swapped = bytes((0x7A, 11, 0x12, 4)) + b"abcd" + told
    long_length = bytes((0x7A, 12)) + told + bytes((0x12, 0x84, 0x00)) + b"abcd"
    without_data = bytes((0x7A, 5)) + told
    without_checksum = bytes((0x7A, 6, 0x12, 4)) + b"abcd"
    for message in (swapped, without_data, without_checksum):
        assert read_head(message[:HEAD_BYTES], len(message)) is None
        assert stream_pb2.StreamBatchesResponse.FromString(message).HasField("chunk")
    head = read_head(long_length, len(long_length))  # a valid varint too
    assert head is not None
    assert long_length[head.data_begin :] == b"abcd"


@examples(500)
@given(st.binary(max_size=40))
def test_noise(noise: bytes) -> None:
    for message in (noise, b"\x7a" + noise, bytes((0x7A, len(noise))) + noise):
        head = read_head(message[:HEAD_BYTES], len(message))
        if head is not None:
            assert head.data_begin + head.data_bytes == len(message)
            read = stream_pb2.StreamBatchesResponse.FromString(message)
            assert read.chunk.data == message[head.data_begin :]
            assert read.chunk.checksum == head.checksum
