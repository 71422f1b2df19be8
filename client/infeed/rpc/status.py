"""Mapping of a call's status (status.proto), or its connection's failure, to an `InfeedError`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import unquote

from google.protobuf.message import DecodeError

from infeed.http2.connection import Http2ProtocolError
from infeed.http2.socket import ConnectionLostError, TLSVerificationError
from infeed.http2.tls_config import TLS, TURN_ON, spelled
from infeed.shared.errors import (
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
from infeed.v1 import status_pb2

CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
"""The names of gRPC's status codes, by number."""

_ERRORS: dict[str, tuple[type[InfeedError], str]] = {
    "UNAVAILABLE": (ServerUnavailableError, "no server at {}: {}"),
    "RESOURCE_EXHAUSTED": (ServerUnavailableError, "{} is overloaded: {}"),
    # A feed that cancels reads no response, so the server is shutting down.
    "CANCELLED": (ServerUnavailableError, "{} ended the call: {}"),
    "UNAUTHENTICATED": (AuthenticationError, "{} requires authentication: {}"),
    "PERMISSION_DENIED": (PermissionDeniedError, "{} denied permission: {}"),
    "DEADLINE_EXCEEDED": (StallError, "{} did not respond in time: {}"),
    "UNIMPLEMENTED": (ProtocolError, "{} is not an infeed server of this version: {}"),
}
"""The error for a status without infeed's own details, and its message for target and details."""

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
        error = map_http_error(headers, target) if headers else None
        return error or _unavailable(target, "the call ended without a status")
    if status == "0":
        return None
    if error := error_from_details(_decode_base64(source.get("grpc-status-details-bin", ""))):
        return error
    is_known = status.isdecimal() and len(status) <= 2 and int(status) < len(CODES)
    code = CODES[int(status)] if is_known else f"status {status}"
    details = unquote(source.get("grpc-message", "")) or "no reason given"
    kind, text = _ERRORS.get(code, (ServerError, "{} failed with {code}: {}"))
    exhausted = code if code == "RESOURCE_EXHAUSTED" else None
    return kind(text.format(target, details, code=code), target=target, code=exhausted)


def _unavailable(target: str, reason: str) -> ServerUnavailableError:
    return ServerUnavailableError(f"no server at {target}: {reason}", target=target)


def _decode_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return b""  # the status code and message remain


def error_from_details(details: bytes) -> InfeedError | None:
    """Returns the infeed error in a serialized `google.rpc.Status`; None when it has none."""
    try:
        status = status_pb2.Status.FromString(details)
        for detail in status.details:
            if detail.type_url == _TYPE_URL:
                info = status_pb2.ErrorInfo.FromString(detail.value)
                if info.domain == DOMAIN:
                    return from_reason(info.reason, status.message, dict(info.metadata))
    except (DecodeError, UnicodeDecodeError):  # pure-Python protobuf raises the second
        pass  # the status code and message remain
    return None


CONNECTION_ERRORS = (Http2ProtocolError, ConnectionLostError, OSError)
"""What a connection raises."""

_CLOSED = (ConnectionLostError, ConnectionResetError, BrokenPipeError)


def map_connection_error(error: Exception, server: str, tls_remedy: str) -> InfeedError:
    """Returns the infeed error of a server for an error of its connection."""
    if isinstance(error, Http2ProtocolError):
        message = f"{server} is not an infeed server: {error}{tls_remedy}"
        if "HTTP/1" in str(error):
            message += "; if this is the server's --http address, give its --listen address"
        return ProtocolError(message, target=server)
    if isinstance(error, TLSVerificationError):
        return AuthenticationError(str(error), target=server)
    remedy = tls_remedy if was_closed(error) else ""
    message = f"no server at {server}: {_reason(error)}{remedy}"
    return ServerUnavailableError(message, target=server)


def was_closed(error: Exception) -> bool:
    """Returns whether the peer accepted the connection, and then closed it."""
    return isinstance(error, _CLOSED)


def tls_remedy(tls: TLS | None) -> str:
    """Returns the remedy for a peer that never spoke HTTP/2: its port may require TLS or a
    certificate."""
    if tls is None:
        return f"; if this port requires TLS, {TURN_ON}"
    return f"; if this port requires a client certificate, set {spelled('cert', 'key')}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not respond in time"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
