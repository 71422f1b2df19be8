"""Mapping of a gRPC call's status to an `InfeedError`; `map_status` is the only place for it.

A gRPC error's trailing metadata holds a serialized `google.rpc.Status` whose details hold a
`google.rpc.ErrorInfo`. Both are defined here by hand, in a descriptor pool of their own: the client
needs no further dependency, and there is no conflict when the official package is loaded too.
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

_CONNECTION_LOST = ("RST_STREAM", "Stream removed", "GOAWAY")
"""Phrases in the message of a call whose connection was lost, whatever its code."""

_GATEWAY_STATUSES = {"429", "502", "503", "504"}
"""HTTP statuses of a proxy whose server is unavailable."""

_CONTENT_TYPE = "application/grpc"

_TYPE_URL = "type.googleapis.com/google.rpc.ErrorInfo"


def map_http_error(headers: Mapping[str, str], target: str) -> InfeedError | None:
    """Returns the error for a response that is not gRPC, by its headers; None for gRPC."""
    if headers.get(":status") == "200":
        if headers.get("content-type", "").startswith(_CONTENT_TYPE):
            return None
    elif headers.get(":status", "") in _GATEWAY_STATUSES:
        return _unavailable(target, f"HTTP status {headers[':status']}")
    content_type = headers.get("content-type", "no content type")
    return ProtocolError(
        f"{target} is not an infeed server: HTTP status {headers.get(':status')}, {content_type}",
        target=target,
    )


def map_status(
    headers: Mapping[str, str], trailers: Mapping[str, str], target: str
) -> InfeedError | None:
    """Returns the error of a response; None when the call succeeded."""
    source = trailers if "grpc-status" in trailers else headers
    status = source.get("grpc-status")
    if status is None:
        if not headers:
            return _unavailable(target, "the call ended without a response")
        return map_http_error(headers, target) or _unavailable(
            target, "the call ended without a status"
        )
    if status == "0":
        return None
    if error := error_from_details(_decode_base64(source.get("grpc-status-details-bin", ""))):
        return error
    is_known = status.isdecimal() and len(status) <= 2 and int(status) < len(CODES)
    code = CODES[int(status)] if is_known else f"status {status}"
    return _error_of_code(
        code, unquote(source.get("grpc-message", "")) or "no reason given", target
    )


def _unavailable(target: str, reason: str) -> ServerUnavailableError:
    return ServerUnavailableError(f"no server at {target}: {reason}", target=target)


def _error_of_code(code: str, details: str, target: str) -> InfeedError:
    if code in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"} or any(
        word in details for word in _CONNECTION_LOST
    ):
        return _unavailable(target, details)
    if code == "CANCELLED":
        # A feed that cancels reads no response, so the server is shutting down.
        return ServerUnavailableError(f"{target} ended the call: {details}", target=target)
    if code == "UNAUTHENTICATED":
        return AuthenticationError(f"{target} requires authentication: {details}", target=target)
    if code == "PERMISSION_DENIED":
        return PermissionDeniedError(f"{target} denied permission: {details}", target=target)
    if code == "DEADLINE_EXCEEDED":
        return StallError(f"{target} did not respond in time: {details}", target=target)
    if code == "UNIMPLEMENTED":
        return ProtocolError(
            f"{target} is not an infeed server of this version: {details}", target=target
        )
    return ServerError(f"{target} failed with {code}: {details}", target=target)


def _decode_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return b""  # the status code and message remain


def error_from_details(details: bytes) -> InfeedError | None:
    """Returns the infeed error in a serialized `google.rpc.Status`; None when it has none."""
    try:
        status = _Status.FromString(details)
        for detail in status.details:
            if detail.type_url == _TYPE_URL:
                info = _ErrorInfo.FromString(detail.value)
                if info.domain == DOMAIN:
                    return from_reason(info.reason, status.message, dict(info.metadata))
    except DecodeError:
        pass  # the status code and message remain
    return None


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, name: str, kind: str) -> None:
    """Adds a field of a scalar type, or a repeated one of the message type `kind`, ".name"."""
    types = descriptor_pb2.FieldDescriptorProto
    if kind.startswith("."):
        field = message.field.add(name=name, number=number, type_name=kind)
        field.type, field.label = types.TYPE_MESSAGE, types.LABEL_REPEATED
    else:
        field = message.field.add(name=name, number=number)
        field.type, field.label = types.Type.Value(f"TYPE_{kind.upper()}"), types.LABEL_OPTIONAL


def _define_messages() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="infeed/status.proto", package="google.rpc", syntax="proto3"
    )
    file.dependency.append(any_pb2.DESCRIPTOR.name)
    status = file.message_type.add(name="Status")
    _add_field(status, 1, "code", "int32")
    _add_field(status, 2, "message", "string")
    _add_field(status, 3, "details", ".google.protobuf.Any")
    info = file.message_type.add(name="ErrorInfo")
    _add_field(info, 1, "reason", "string")
    _add_field(info, 2, "domain", "string")
    _add_field(info, 3, "metadata", ".google.rpc.ErrorInfo.MetadataEntry")
    entry = info.nested_type.add(name="MetadataEntry")
    entry.options.map_entry = True
    _add_field(entry, 1, "key", "string")
    _add_field(entry, 2, "value", "string")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    names = ("google.rpc.Status", "google.rpc.ErrorInfo")
    first, second = (pool.FindMessageTypeByName(name) for name in names)
    return message_factory.GetMessageClass(first), message_factory.GetMessageClass(second)


_Status, _ErrorInfo = _define_messages()
