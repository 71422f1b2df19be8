"""A grpcio client of the .proto: generated stubs and default channel options."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import numpy as np
import pytest
import xxhash

from infeed.v1 import stream_pb2
from infeed_server.pipeline.load import parse

PROTOS = Path(__file__).parents[2] / "proto"


@pytest.fixture(scope="module")
def feed_service_grpc(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The stub of grpcio for the service, generated as a user of grpcio does: infeed has none."""
    folder = tmp_path_factory.mktemp("stubs")
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(PROTOS)]
    service = PROTOS / "infeed/v1/feed_service.proto"
    subprocess.run([*protoc, f"--grpc_python_out={folder}", service], check=True, timeout=120)
    file = folder / "infeed/v1/feed_service_pb2_grpc.py"
    spec = importlib.util.spec_from_file_location("feed_service_pb2_grpc", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def request(**event: Any) -> stream_pb2.StreamBatchesRequest:
    return stream_pb2.StreamBatchesRequest(**event)


def requests(pipeline: str, count: int) -> Iterator[stream_pb2.StreamBatchesRequest]:
    yield request(open=stream_pb2.StreamOpen(pipeline=pipeline))
    yield request(batch=stream_pb2.BatchRequest(request_id=7, start=0, count=count))


def test_batch_of_40_megabytes_needs_no_channel_options(
    serve: Any, feed_service_grpc: ModuleType
) -> None:
    rows = 10
    values = np.random.default_rng(0).integers(0, 255, (rows, 4_000_000), np.uint8)
    names = np.array([f"sample {row}" for row in range(rows)], dtype="S")
    source = {"arrays": {"values": values, "names": names}}
    server = serve({"big": parse({"source": source, "batch": {"size": rows}})})
    with grpc.insecure_channel(str(server.address)) as channel:
        stub = feed_service_grpc.FeedServiceStub(channel)
        all_responses = stub.StreamBatches(requests("big", rows), timeout=60)
        responses = (item for item in all_responses if item.WhichOneof("event") != "heartbeat")
        opened = next(responses).opened
        header = next(responses).header
        payload = bytearray()
        chunks = 0
        for response in responses:
            assert len(response.chunk.data) <= 2 << 20
            assert xxhash.xxh3_64_intdigest(response.chunk.data) == response.chunk.checksum
            chunks += 1
            payload += response.chunk.data
    assert chunks > 3
    assert len(payload) % (2 << 20)
    assert header.request_id == 7
    assert len(payload) == header.payload_size > 40_000_000
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
