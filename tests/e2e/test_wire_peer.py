"""A peer that knows only the .proto: generated classes, default channel options, real bytes."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from infeed.v1 import feed_service_pb2, feed_service_pb2_grpc, spec_pb2, stream_pb2
from infeed_server.pipeline.load import parse


def request(**event: Any) -> stream_pb2.StreamBatchesRequest:
    return stream_pb2.StreamBatchesRequest(**event)


def asks(pipeline: str, count: int) -> Iterator[stream_pb2.StreamBatchesRequest]:
    yield request(open=stream_pb2.StreamOpen(pipeline=pipeline))
    yield request(batch=stream_pb2.BatchRequest(request_id=7, start=0, count=count))


def checksum(data: bytes) -> int:
    """As stream.proto says it, word by word."""
    data += bytes(-len(data) % 8192)
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    columns = [sum(words[column::1024]) for column in range(1024)]
    rows = [sum(words[begin : begin + 1024]) for begin in range(0, len(words), 1024)]
    sums = [number % (1 << 64) for number in columns + rows]
    return zlib.crc32(struct.pack(f"<{len(sums)}Q", *sums))


def test_200_megabytes_pass_with_default_options(serve: Any) -> None:
    rows = 50
    values = np.random.default_rng(0).integers(0, 255, (rows, 4_000_000), np.uint8)
    names = np.array([f"sample {row}" for row in range(rows)], dtype="S")
    source = {"arrays": {"values": values, "names": names}}
    server = serve({"big": parse({"source": source, "batch": {"size": rows}})})
    with grpc.insecure_channel(str(server.address)) as channel:
        stub = feed_service_pb2_grpc.FeedServiceStub(channel)
        answers = stub.StreamBatches(asks("big", rows), timeout=60)
        opened = next(answers).opened
        header = next(answers).header
        payload = bytearray()
        chunks = 0
        for answer in answers:
            if answer.WhichOneof("event") == "heartbeat":
                continue
            assert len(answer.chunk.data) <= 2 << 20
            if not chunks or len(answer.chunk.data) < 2 << 20:  # the last one is shorter
                assert checksum(answer.chunk.data) == answer.chunk.checksum
            chunks += 1
            payload += answer.chunk.data
    assert chunks > 3
    assert len(payload) % (2 << 20)
    assert header.request_id == 7
    assert len(payload) == header.payload_size > 200_000_000 - 1
    assert list(header.sample_ids) == list(range(rows))
    fields = {field.name: layout for field, layout in zip(opened.spec, header.layouts, strict=True)}
    layout = fields["values"]
    assert payload[layout.offset : layout.offset + layout.size] == values.tobytes()
    layout = fields["names"]
    table = (rows + 1) * 8
    strings = payload[layout.offset : layout.offset + layout.size]
    offsets = np.frombuffer(bytes(strings[:table]), "<u8").astype(int)
    texts = [
        bytes(strings[table + begin : table + end]) for begin, end in itertools.pairwise(offsets)
    ]
    assert texts == names.tolist()


def test_list_and_get(serve: Any) -> None:
    arrays = {"x": np.arange(10, dtype=np.float32)}
    pipeline = parse({"source": {"arrays": arrays}, "batch": {"size": 2}})
    server = serve(dict.fromkeys(("c", "a", "b"), pipeline))
    with grpc.insecure_channel(str(server.address)) as channel:
        stub = feed_service_pb2_grpc.FeedServiceStub(channel)
        names, token = [], ""
        while True:
            page = stub.ListPipelines(
                feed_service_pb2.ListPipelinesRequest(page_size=2, page_token=token), timeout=10
            )
            names.append([pipeline.name for pipeline in page.pipelines])
            token = page.next_page_token
            if not token:
                break
        assert names == [["a", "b"], ["c"]]
        answer = stub.GetPipeline(feed_service_pb2.GetPipelineRequest(name="a"), timeout=100)
        assert answer.pipeline.sample_count == 10
        assert answer.pipeline.guarantee.delivery == spec_pb2.DELIVERY_EXACTLY_ONCE


def test_health_and_reflection(serve: Any) -> None:
    arrays = {"x": np.arange(10, dtype=np.float32)}
    server = serve({"a": parse({"source": {"arrays": arrays}, "batch": {"size": 2}})})
    with grpc.insecure_channel(str(server.address)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "infeed.v1.FeedService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=100)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = ProtoReflectionDescriptorDatabase(channel)
        assert "infeed.v1.FeedService" in reflection.get_services()
        file = reflection.FindFileContainingSymbol("infeed.v1.FeedService")
        assert file.name == "infeed/v1/feed_service.proto"
