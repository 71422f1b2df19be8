"""Errors as gRPC statuses: the one place where a Python error becomes a code with details."""

from __future__ import annotations

import logging
from typing import NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from infeed.errors import DOMAIN, InfeedError, ServerError

log = logging.getLogger(__name__)

_MAX_MESSAGE = 3000
"""Characters. Trailers are refused by most peers above 8 KiB, and carry the message twice."""


def abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    """Ends the call with the error's status."""
    if not isinstance(error, InfeedError):
        log.exception("a call failed", exc_info=error)
        error = ServerError(f"{type(error).__name__}: {error}")
    context.abort_with_status(rpc_status.to_status(to_status(error)))
    raise AssertionError("abort_with_status always raises")


def to_status(error: InfeedError) -> status_pb2.Status:
    """The error as google.rpc.Status with one ErrorInfo."""
    metadata = {key: _cut(value, 300) for key, value in error.metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    detail = any_pb2.Any()
    detail.Pack(info)
    code = code_pb2.Code.Value(error.code)
    return status_pb2.Status(code=code, message=_cut(error.message, _MAX_MESSAGE), details=[detail])


def _cut(text: str, limit: int) -> str:
    # The end of a traceback says most, the beginning of the message where it happened.
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
