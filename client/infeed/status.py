"""google.rpc.Status, read without the package that usually brings it.

A gRPC error's trailing metadata holds a serialized `google.rpc.Status` whose details hold a
`google.rpc.ErrorInfo`. Both are described here by hand, in a descriptor pool of our own: the
trainer's side gains no dependency, and nothing clashes where the official package is loaded too.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from infeed.errors import DOMAIN, InfeedError, from_reason

METADATA_KEY = "grpc-status-details-bin"
"""The key of the trailing metadata."""

_TYPE_URL = "type.googleapis.com/google.rpc.ErrorInfo"


def error_from_details(details: bytes) -> InfeedError | None:
    """The infeed error inside a serialized `google.rpc.Status`; None when it holds none."""
    try:
        status = _Status.FromString(details)
        for detail in status.details:
            if detail.type_url == _TYPE_URL:
                info = _ErrorInfo.FromString(detail.value)
                if info.domain == DOMAIN:
                    return from_reason(info.reason, status.message, dict(info.metadata))
    except DecodeError:
        pass  # the status code and its text still say what happened
    return None


def _field(
    message: descriptor_pb2.DescriptorProto, number: int, name: str, kind: str, of: str = ""
) -> None:
    repeated = kind == "repeated"
    field = message.field.add(name=name, number=number)
    if of:
        field.type_name = of
    field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(
        "TYPE_MESSAGE" if repeated else f"TYPE_{kind.upper()}"
    )
    field.label = descriptor_pb2.FieldDescriptorProto.Label.Value(
        "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
    )


def _messages() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="infeed/status.proto", package="google.rpc", syntax="proto3"
    )
    file.dependency.append(any_pb2.DESCRIPTOR.name)
    status = file.message_type.add(name="Status")
    _field(status, 1, "code", "int32")
    _field(status, 2, "message", "string")
    _field(status, 3, "details", "repeated", ".google.protobuf.Any")
    info = file.message_type.add(name="ErrorInfo")
    _field(info, 1, "reason", "string")
    _field(info, 2, "domain", "string")
    _field(info, 3, "metadata", "repeated", ".google.rpc.ErrorInfo.MetadataEntry")
    entry = info.nested_type.add(name="MetadataEntry")
    entry.options.map_entry = True
    _field(entry, 1, "key", "string")
    _field(entry, 2, "value", "string")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    names = ("google.rpc.Status", "google.rpc.ErrorInfo")
    first, second = (pool.FindMessageTypeByName(name) for name in names)
    return message_factory.GetMessageClass(first), message_factory.GetMessageClass(second)


_Status, _ErrorInfo = _messages()

__all__ = ["METADATA_KEY", "error_from_details"]
