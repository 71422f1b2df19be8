"""The error that ends a call with a gRPC status. Each has a google.rpc.ErrorInfo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from infeed.shared.errors import (
    DOMAIN,
    AuthenticationError,
    InvalidRequestError,
    PermissionDeniedError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    StallError,
)

_DETAILS_KEY = "grpc-status-details-bin"

_MAX_DETAILS_CHARS = 500
"""Length of the message's copy in the details: the trailers as a whole must stay below 8 KiB."""

_ERRORS = {
    grpc.StatusCode.UNAVAILABLE: ServerUnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ServerUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: StallError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.UNIMPLEMENTED: ProtocolError,
    grpc.StatusCode.INTERNAL: ProtocolError,
    grpc.StatusCode.UNKNOWN: ServerError,
}
"""The errors whose reasons statuses of gRPC itself have, such as those of unknown methods; the
reason of any other one is the name of its code."""


class StatusError(Exception):
    """Ends a call with a status."""

    def __init__(
        self,
        code: grpc.StatusCode,
        details: str,
        trailers: Sequence[tuple[str, Any]] = (),
        *,
        reason: str | None = None,
    ) -> None:
        """`trailers` are those of an `InfeedError`, and have its reason.

        Without them, the ErrorInfo has `reason`; None: that of the code.
        """
        super().__init__(details)
        self.code = code
        self.details = details
        self.trailers = trailers or [(_DETAILS_KEY, _error_info(code, details, reason))]


def _error_info(code: grpc.StatusCode, details: str, reason: str | None) -> bytes:
    error = _ERRORS.get(code)
    reason = reason or (code.name if error is None else error.reason)
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN))
    text = details.encode(errors="replace").decode()  # UTF-8 has no surrogates
    status = status_pb2.Status(
        code=code.value[0], message=text[:_MAX_DETAILS_CHARS], details=[detail]
    )
    serialized: bytes = status.SerializeToString()
    return serialized


__all__ = ["StatusError"]
