"""What a gRPC call's end says: `map_status` is the only place that makes an `InfeedError` of it.

A gRPC error's trailing metadata holds a serialized `google.rpc.Status` whose details hold a
`google.rpc.ErrorInfo`. Both are described here by hand, in a descriptor pool of our own: the
trainer's side gains no dependency, and nothing clashes where the official package is loaded too.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from infeed.errors import (
    DOMAIN,
    AuthenticationError,
    InfeedError,
    PermissionDeniedError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    StallError,
    from_reason,
)

CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""The names of gRPC's status codes, by number."""

_LOST = ("RST_STREAM", "Stream removed", "GOAWAY")
_GATEWAY = {"429", "502", "503", "504"}
"""HTTP's ways to say that the server behind a proxy is away."""

_CONTENT_TYPE = "application/grpc"

_TYPE_URL = "type.googleapis.com/google.rpc.ErrorInfo"


def refusal(headers: Mapping[str, str], target: str) -> InfeedError | None:
    """The error that an answer is whose headers are not gRPC's; None for one that is gRPC."""
    if headers.get(":status") == "200":
        if headers.get("content-type", "").startswith(_CONTENT_TYPE):
            return None
    elif headers.get(":status", "") in _GATEWAY:
        return _away(target, f"HTTP status {headers[':status']}")
    kind = headers.get("content-type", "no content type")
    return ProtocolError(
        f"{target} answers, but not as an infeed server: HTTP status "
        f"{headers.get(':status')}, {kind}",
        target=target,
    )


def map_status(
    headers: Mapping[str, str], trailers: Mapping[str, str], target: str
) -> InfeedError | None:
    """The error that an answer carries or amounts to; None when the call went well."""
    told = trailers if "grpc-status" in trailers else headers
    status = told.get("grpc-status")
    if status is None:
        if not headers:
            return _away(target, "the call ended without an answer")
        return refusal(headers, target) or _away(target, "the call ended without a status")
    if status == "0":
        return None
    if error := error_from_details(_binary(told.get("grpc-status-details-bin", ""))):
        return error
    known = status.isdecimal() and len(status) <= 2 and int(status) < len(CODES)
    code = CODES[int(status)] if known else f"status {status}"
    return _by_code(code, unquote(told.get("grpc-message", "")) or "no reason given", target)


def _away(target: str, reason: str) -> ServerUnavailableError:
    return ServerUnavailableError(f"no server at {target}: {reason}", target=target)


def _by_code(code: str, details: str, target: str) -> InfeedError:
    if code in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"} or any(word in details for word in _LOST):
        return _away(target, details)
    if code == "CANCELLED":
        # A feed that cancels expects no answer, so this is a server that shuts down.
        return ServerUnavailableError(f"{target} ended the call: {details}", target=target)
    if code == "UNAUTHENTICATED":
        return AuthenticationError(f"{target} wants to know who asks: {details}", target=target)
    if code == "PERMISSION_DENIED":
        return PermissionDeniedError(f"{target} refuses: {details}", target=target)
    if code == "DEADLINE_EXCEEDED":
        return StallError(f"{target} did not answer in time: {details}", target=target)
    if code == "UNIMPLEMENTED":
        return ProtocolError(
            f"{target} answers, but not as an infeed server of this version: {details}",
            target=target,
        )
    return ServerError(f"{target} failed with {code}: {details}", target=target)


def _binary(value: str) -> bytes:
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return b""  # the status code and its text still say what happened


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

__all__ = ["CODES", "error_from_details", "map_status", "refusal"]
