"""gRPC's reflection service, under its current name (v1) and its former one (v1alpha).

Both have the same messages. gRPC's package for Python has v1alpha only.
"""

from __future__ import annotations

from collections.abc import Iterable

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from infeed.v1 import feed_service_pb2
from infeed_server.rpc.router import Router

_V1ALPHA = reflection.SERVICE_NAME
_V1 = _V1ALPHA.replace("v1alpha", "v1")


def add_reflection(services: Iterable[str], router: Router) -> None:
    """Adds both services to a router; they list themselves and `services`."""
    servicer = reflection.ReflectionServicer((*services, _V1ALPHA, _V1), pool=_pool())
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, router)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handlers = {"ServerReflectionInfo": handler}
    router.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_V1, handlers)])


def _pool() -> descriptor_pool.DescriptorPool:
    """Returns the files of the services.

    Not the default pool, in which a later version of gRPC's package may register v1 itself.
    """
    pool = descriptor_pool.DescriptorPool()
    for module in (feed_service_pb2, health_pb2, reflection_pb2):
        _add_file(module.DESCRIPTOR, pool)
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    v1_text = text_format.MessageToString(file).replace("v1alpha", "v1")
    pool.Add(text_format.Parse(v1_text, descriptor_pb2.FileDescriptorProto()))
    return pool


def _add_file(file: FileDescriptor, pool: descriptor_pool.DescriptorPool) -> None:
    for dependency in file.dependencies:
        _add_file(dependency, pool)
    pool.AddSerializedFile(file.serialized_pb)
