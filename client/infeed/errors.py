"""Exceptions of infeed, client and server.

InfeedError
├── ConfigError             INVALID_CONFIG         a definition or an option is invalid
├── SourceError             BAD_SOURCE             a source cannot be opened, or is empty
├── SampleError             BAD_SAMPLE             one sample cannot be read or transformed
├── UserCodeError           USER_CODE              a user's function raised an exception
├── PipelineNotFoundError   PIPELINE_NOT_FOUND     no pipeline has that name
├── InvalidRequestError     INVALID_REQUEST        a size, rank or position is out of range
├── CursorError             CURSOR_MISMATCH        the cursor is of another pipeline or seed
├── FingerprintError        FINGERPRINT_MISMATCH   the server's pipeline is another version
├── ServerUnavailableError  SERVER_UNAVAILABLE     no server answers
├── StallError              STALLED                no batch within the timeout
├── ProtocolError           PROTOCOL               the peer sent invalid data
├── AuthenticationError     UNAUTHENTICATED        the token or a certificate was rejected
├── PermissionDeniedError   PERMISSION_DENIED      the token gives no access to the pipeline
├── FeedClosedError         FEED_CLOSED            the feed was closed
├── MissingExtraError       MISSING_EXTRA          an optional dependency is not installed
└── ServerError             INTERNAL               any other failure of the server

The server sends an error as a gRPC status with one google.rpc.ErrorInfo: the reason above, the
domain `infeed.dev`, and the variable parts of the message as metadata. The client raises the class
of that reason (only `infeed.rpc.status` and `infeed.rpc.call` convert).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

DOMAIN = "infeed.dev"


class InfeedError(Exception):
    """The base of all errors that infeed raises.

    `reason` is stable, for programs; `message` may change. `metadata` holds the variable parts of
    the message.
    """

    reason: ClassVar[str] = "INTERNAL"
    code: ClassVar[str] = "INTERNAL"
    """The name of the gRPC status code of the error."""

    def __init__(self, message: str, **metadata: object) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: Mapping[str, str] = {
            key: str(value) for key, value in metadata.items() if value is not None
        }


class ConfigError(InfeedError):
    """A definition, an option or a configuration file is invalid; the message names the place."""

    reason = "INVALID_CONFIG"
    code = "INVALID_ARGUMENT"


class SourceError(InfeedError):
    """A source cannot be opened: no file matches, it is empty, or it changed while in use."""

    reason = "BAD_SOURCE"
    code = "FAILED_PRECONDITION"


class SampleError(InfeedError):
    """One sample cannot be read or transformed.

    `metadata` holds `sample_id`, `file`, `offset` (in bytes, if the file holds many samples) and
    `stage` (the transform), as far as they are known.
    """

    reason = "BAD_SAMPLE"
    code = "DATA_LOSS"


class UserCodeError(InfeedError):
    """A user's function raised an exception. The message ends with its traceback."""

    reason = "USER_CODE"
    code = "FAILED_PRECONDITION"


class PipelineNotFoundError(InfeedError):
    """No pipeline has that name; the message lists the available ones."""

    reason = "PIPELINE_NOT_FOUND"
    code = "NOT_FOUND"


class InvalidRequestError(InfeedError, ValueError):
    """A batch size, rank, seed, number of epochs or position is out of range."""

    reason = "INVALID_REQUEST"
    code = "INVALID_ARGUMENT"


class CursorError(InfeedError):
    """A cursor has another pipeline, seed or fingerprint; the message lists the differences."""

    reason = "CURSOR_MISMATCH"
    code = "FAILED_PRECONDITION"


class FingerprintError(InfeedError):
    """The server's pipeline is not the version that the feed was opened with."""

    reason = "FINGERPRINT_MISMATCH"
    code = "FAILED_PRECONDITION"


class ServerUnavailableError(InfeedError, ConnectionError):
    """No server answered at the target."""

    reason = "SERVER_UNAVAILABLE"
    code = "UNAVAILABLE"


class StallError(InfeedError, TimeoutError):
    """No batch arrived within the timeout."""

    reason = "STALLED"
    code = "DEADLINE_EXCEEDED"


class ProtocolError(InfeedError):
    """The peer sent invalid data: a wrong order, length or checksum."""

    reason = "PROTOCOL"
    code = "DATA_LOSS"


class AuthenticationError(InfeedError):
    """The server rejected the token or client certificate, or its own is not trusted."""

    reason = "UNAUTHENTICATED"
    code = "UNAUTHENTICATED"


class PermissionDeniedError(InfeedError, PermissionError):
    """The token is valid but gives no access to the pipeline."""

    reason = "PERMISSION_DENIED"
    code = "PERMISSION_DENIED"


class FeedClosedError(InfeedError):
    """The feed was closed, or was opened by the parent process of a fork."""

    reason = "FEED_CLOSED"
    code = "CANCELLED"


class MissingExtraError(InfeedError, ImportError):
    """An optional dependency is not installed; the message has the install command."""

    reason = "MISSING_EXTRA"
    code = "UNIMPLEMENTED"


class ServerError(InfeedError):
    """The server failed in a way that no other class describes."""


def _leaves(root: type[InfeedError]) -> dict[str, type[InfeedError]]:
    return {error.reason: error for error in root.__subclasses__()}


BY_REASON: Mapping[str, type[InfeedError]] = _leaves(InfeedError)
"""Reason → class, for client and server."""


def from_reason(reason: str, message: str, metadata: Mapping[str, str]) -> InfeedError:
    """Returns the error that the server sent; `ServerError` for an unknown reason."""
    error = BY_REASON.get(reason, ServerError)(message)
    error.metadata = dict(metadata)
    return error


__all__ = [
    "BY_REASON",
    "DOMAIN",
    "AuthenticationError",
    "ConfigError",
    "CursorError",
    "FeedClosedError",
    "FingerprintError",
    "InfeedError",
    "InvalidRequestError",
    "MissingExtraError",
    "PermissionDeniedError",
    "PipelineNotFoundError",
    "ProtocolError",
    "SampleError",
    "ServerError",
    "ServerUnavailableError",
    "SourceError",
    "StallError",
    "UserCodeError",
    "from_reason",
]
