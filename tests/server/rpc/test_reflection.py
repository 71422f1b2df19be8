"""gRPC's reflection service under both of its names."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2

from infeed_server.rpc import health
from infeed_server.rpc.servicer import SERVICE

V1, V1ALPHA = "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"
SERVICES = sorted([SERVICE, health.SERVICE, V1, V1ALPHA])


@pytest.fixture(params=[V1, V1ALPHA])
def ask(channel: grpc.Channel, request: pytest.FixtureRequest) -> Any:
    """Returns the answers of a version: `ask(field=value, ...)`, one for each field."""
    method: Any = channel.stream_stream(
        f"/{request.param}/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )

    def answers(**fields: str) -> list[Any]:
        requests = [
            reflection_pb2.ServerReflectionRequest(**{name: value})
            for name, value in fields.items()
        ]
        return list(method(iter(requests), timeout=60))

    return answers


def test_services_are_listed(ask: Any) -> None:
    (answer,) = ask(list_services="")
    assert [each.name for each in answer.list_services_response.service] == SERVICES


@pytest.mark.parametrize("service", SERVICES)
def test_files_of_a_service_define_it(ask: Any, service: str) -> None:
    (answer,) = ask(file_containing_symbol=service)
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(each)
        for each in answer.file_descriptor_response.file_descriptor_proto
    ]
    pool = DescriptorPool()
    by_name = {file.name: file for file in files}

    def add(file: descriptor_pb2.FileDescriptorProto) -> None:
        for dependency in file.dependency:
            add(by_name[dependency])
        pool.Add(file)

    for file in files:
        add(file)
    assert pool.FindServiceByName(service).methods


def test_unknown_file_is_not_found(ask: Any) -> None:
    (answer,) = ask(file_by_filename="none")
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
