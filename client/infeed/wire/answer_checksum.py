"""Checksum of the answer to one request: of all but the payload, whose chunks have their own.

proto/infeed/v1/stream.proto defines its bytes at `BatchHeader.checksum`. They depend on the values
alone, not on how protobuf serializes them, so that a client in any language can compute them.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np

from infeed.shared.spec import Spec
from infeed.v1 import stream_pb2
from infeed.wire.chunk import checksum


def answer_checksum(
    request: stream_pb2.BatchRequest,
    answer: stream_pb2.BatchHeader | stream_pb2.EndOfData,
    spec: Spec,
) -> int:
    """Returns the checksum that the answer to the request must have."""
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
