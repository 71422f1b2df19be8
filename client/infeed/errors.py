"""Every error of infeed, on both sides of the wire.

InfeedError
├── ConfigError             INVALID_CONFIG         a definition or an option is wrong
├── SourceError             BAD_SOURCE             a source cannot be opened, or is empty
├── SampleError             BAD_SAMPLE             one sample cannot be read or transformed
├── UserCodeError           USER_CODE              a user's function raised; carries its traceback
├── PipelineNotFoundError   PIPELINE_NOT_FOUND     the server knows other pipelines
├── InvalidRequestError     INVALID_REQUEST        a size, rank or position out of range
├── CursorError             CURSOR_MISMATCH        the cursor of another pipeline or seed
├── FingerprintError        FINGERPRINT_MISMATCH   the server's pipeline is another
├── ServerUnavailableError  SERVER_UNAVAILABLE     no server answers
├── StallError              STALLED                no batch within the time that was given
├── ProtocolError           PROTOCOL               bytes that no correct peer sends
├── AuthenticationError     UNAUTHENTICATED        one end does not believe who the other is
├── PermissionDeniedError   PERMISSION_DENIED      the token has no right to the pipeline
├── FeedClosedError         FEED_CLOSED            the feed was closed
├── MissingExtraError       MISSING_EXTRA          an optional dependency is not installed
└── ServerError             INTERNAL               the server failed without a name for it

The server turns an error into a gRPC status with one google.rpc.ErrorInfo: the reason above, the
domain `infeed.dev`, and what varies in the message as metadata. The client turns it back into the
same class by that reason (`infeed.status` and `infeed.call` are the only places that do).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

DOMAIN = "infeed.dev"


class InfeedError(Exception):
    """The base of every error that infeed raises.

    `reason` is stable and may be matched on; the message is for people. `metadata` holds the
    parts of the message that vary.
    """

    reason: ClassVar[str] = "INTERNAL"
    code: ClassVar[str] = "INTERNAL"
    """The name of the gRPC status code that the error travels as."""

    def __init__(self, message: str, **metadata: object) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: Mapping[str, str] = {
            key: str(value) for key, value in metadata.items() if value is not None
        }


class ConfigError(InfeedError):
    """A definition, an option or a file of options is wrong; the message says where."""

    reason = "INVALID_CONFIG"
    code = "INVALID_ARGUMENT"


class SourceError(InfeedError):
    """A source cannot be opened: nothing matches, it is empty, or it changed underneath."""

    reason = "BAD_SOURCE"
    code = "FAILED_PRECONDITION"


class SampleError(InfeedError):
    """One sample cannot be read or transformed.

    `metadata` holds `sample_id`, `file`, `offset` (bytes, where the file holds many samples) and
    `stage` (the transform), as far as they are known.
    """

    reason = "BAD_SAMPLE"
    code = "DATA_LOSS"


class UserCodeError(InfeedError):
    """A function of the user's raised. The message ends with its traceback."""

    reason = "USER_CODE"
    code = "FAILED_PRECONDITION"


class PipelineNotFoundError(InfeedError):
    """No pipeline of that name; the message lists those that are served."""

    reason = "PIPELINE_NOT_FOUND"
    code = "NOT_FOUND"


class InvalidRequestError(InfeedError, ValueError):
    """A batch size, rank, seed, number of epochs or position is out of range."""

    reason = "INVALID_REQUEST"
    code = "INVALID_ARGUMENT"


class CursorError(InfeedError):
    """A cursor belongs to another pipeline, seed or fingerprint; the message says which differs."""

    reason = "CURSOR_MISMATCH"
    code = "FAILED_PRECONDITION"


class FingerprintError(InfeedError):
    """The server's pipeline is not the version that the feed was opened with."""

    reason = "FINGERPRINT_MISMATCH"
    code = "FAILED_PRECONDITION"


class ServerUnavailableError(InfeedError, ConnectionError):
    """No server answers at the target."""

    reason = "SERVER_UNAVAILABLE"
    code = "UNAVAILABLE"


class StallError(InfeedError, TimeoutError):
    """No batch came within the time that was given."""

    reason = "STALLED"
    code = "DEADLINE_EXCEEDED"


class ProtocolError(InfeedError):
    """The peer sent bytes that no correct peer sends: a wrong order, length or checksum."""

    reason = "PROTOCOL"
    code = "DATA_LOSS"


class AuthenticationError(InfeedError):
    """The server wants a token or a certificate that it knows, or its own is not to be trusted."""

    reason = "UNAUTHENTICATED"
    code = "UNAUTHENTICATED"


class PermissionDeniedError(InfeedError, PermissionError):
    """The token is known, and has no right to the pipeline."""

    reason = "PERMISSION_DENIED"
    code = "PERMISSION_DENIED"


class FeedClosedError(InfeedError):
    """The feed was closed, or belongs to the process that this one was forked from."""

    reason = "FEED_CLOSED"
    code = "CANCELLED"


class MissingExtraError(InfeedError, ImportError):
    """An optional dependency is not installed; the message holds the command that installs it."""

    reason = "MISSING_EXTRA"
    code = "UNIMPLEMENTED"


class ServerError(InfeedError):
    """The server failed in a way it has no name for."""


def _leaves(root: type[InfeedError]) -> dict[str, type[InfeedError]]:
    return {error.reason: error for error in root.__subclasses__()}


BY_REASON: Mapping[str, type[InfeedError]] = _leaves(InfeedError)
"""The table that both sides use: reason → class."""


def from_reason(reason: str, message: str, metadata: Mapping[str, str]) -> InfeedError:
    """The error that the other side raised; `ServerError` for a reason of a newer version."""
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
