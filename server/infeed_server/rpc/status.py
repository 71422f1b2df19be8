"""Errors as gRPC statuses: the one place where a Python error becomes a code with details."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from infeed.errors import DOMAIN, InfeedError, ServerError
from infeed_server.rpc.call import PeerGoneError, ServerCall, StatusError

log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 5500
_MAX_METADATA_BYTES = 1500
"""As they travel. Most peers refuse trailers above 8 KiB in all."""


def abort(context: ServerCall, error: Exception) -> NoReturn:
    """Ends the call with the error's status."""
    if isinstance(error, (StatusError, PeerGoneError)):
        raise error
    if not isinstance(error, InfeedError):
        log.exception("a call failed", exc_info=error)
        error = ServerError(f"{type(error).__name__}: {error}")
    context.abort_with_status(rpc_status.to_status(to_status(error)))
    raise AssertionError("abort_with_status always raises")


def to_status(error: InfeedError) -> status_pb2.Status:
    """The error as google.rpc.Status with one ErrorInfo, cut to what trailers can carry."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    metadata = {key: _encodable(value) for key, value in error.metadata.items()}
    whole = sum(map(_base64_bytes, metadata.values())) <= _MAX_METADATA_BYTES
    share = _MAX_METADATA_BYTES // max(1, len(metadata))
    for key, value in metadata.items():
        info.metadata[key] = value if whole else _cut(value, share, _base64_bytes)
    detail = any_pb2.Any()
    detail.Pack(info)
    message = _cut(_encodable(error.message), _MAX_MESSAGE_BYTES, _travelling_bytes)
    return status_pb2.Status(
        code=code_pb2.Code.Value(error.code), message=message, details=[detail]
    )


def _encodable(text: str) -> str:
    """Without the halves of surrogate pairs that a file's name can hold: they are no UTF-8."""
    return text.encode(errors="replace").decode()


def _base64_bytes(text: str) -> int:
    return len(text.encode()) * 4 // 3


def _travelling_bytes(text: str) -> int:
    # Twice: percent-encoded in grpc-message, and base64 inside of grpc-status-details-bin.
    data = text.encode()
    escaped = sum(not 0x20 <= byte <= 0x7E or byte == 0x25 for byte in data)
    return len(data) + 2 * escaped + _base64_bytes(text)


def _cut(text: str, limit: int, size: Callable[[str], int]) -> str:
    """The text, or its beginning and end: where it happened, and how a traceback closes."""
    keep = len(text)
    result = text
    while keep > 0 and size(result) > limit:
        # Shrinks to the limit in a few steps, whatever the characters weigh.
        keep = max(0, min(keep - 2, keep * limit // size(result)))
        half = keep // 2
        result = f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n"
        result += text[len(text) - half :]
    return result
