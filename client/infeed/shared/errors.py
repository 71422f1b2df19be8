"""Exceptions of infeed, client and server.

A gRPC status has one google.rpc.ErrorInfo: the reason of the class, the domain, and the variable
parts of the message as metadata. The client raises the class of that reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

DOMAIN = "infeed.dev"

MAX_TEXT_CHARACTERS = 1 << 16
"""Characters of one message or log record at most: a user's exception must not fill the memory."""


KeyPath = tuple[str | int, ...]
"""The place of a value in a document: keys and list positions from the top."""


def format_path(path: KeyPath) -> str:
    """Returns `('transforms', 1, 'resize')` as `transforms[1].resize`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def shorten(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Cuts the middle out of a text that is too long: a traceback's two ends matter most."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = f"... ({len(text) - 2 * half} characters left out) ..."
    return f"{text[:half]}\n{left_out}\n{text[len(text) - half :]}"


class InfeedError(Exception):
    """The base class of all errors, never raised itself.

    `reason` is stable; `message` may change, and `metadata` holds its variable parts. `at` is the
    place in a definition, and `problem` the message without it.

    Remedy: catch it to handle every error of infeed.
    """

    reason: ClassVar[str] = "INTERNAL"
    code: ClassVar[str] = "INTERNAL"
    """The name of the error's gRPC status code."""

    def __init_subclass__(cls, reason: str = "", code: str = "", **more: object) -> None:
        super().__init_subclass__(**more)
        cls.reason, cls.code = reason or cls.reason, code or cls.code

    def __init__(
        self, message: str, *, at: Any = (), sample: Any = None, **metadata: object
    ) -> None:
        """`sample` is the index of the sample concerned. PyTorch's `DataLoader` recreates a
        worker's error with `message=`."""
        self.problem = shorten(message)
        self.at: KeyPath = at
        self.sample: int | None = sample
        metadata |= {} if sample is None else {"sample_id": sample}
        super().__init__(self.problem)
        self.line = ""
        """The file and the line of the place, once they are known."""
        self.metadata: Mapping[str, str] = {
            key: shorten(str(value)) for key, value in metadata.items() if value is not None
        }

    @property
    def message(self) -> str:
        text = self.problem if self.sample is None else f"sample {self.sample} {self.problem}"
        return ": ".join(filter(None, (self.line, format_path(self.at), text)))

    def __str__(self) -> str:
        return self.message


@contextmanager
def within(*steps: str | int) -> Iterator[None]:
    """Prefixes the place of each error raised in the block with these steps."""
    try:
        yield
    except InfeedError as error:
        error.at = (*steps, *error.at)
        raise


class ConfigError(InfeedError, reason="INVALID_CONFIG", code="INVALID_ARGUMENT"):
    """A definition or option is invalid: unknown key, wrong type, missing field, port in use.

    Remedy: correct the place that the message names.
    """


class SourceError(InfeedError, reason="BAD_SOURCE", code="FAILED_PRECONDITION"):
    """A source cannot be opened or read: no file matches, or a file is empty, corrupt, missing or
    changed since it was opened.

    `metadata` holds `file`, and `fault`, or `changed` or `damaged` if the server must be restarted
    with other data.

    Remedy: correct the path or the file; restart the server if the data changed.
    """


class SampleError(InfeedError, reason="BAD_SAMPLE", code="DATA_LOSS"):
    """A sample cannot be read or transformed, and the pipeline has `on_error: raise`.

    `metadata` holds `sample_id`, `file`, `offset` (bytes) and `stage` (the transform), if known.

    Remedy: repair the file, or set `on_error` to `substitute` or `mask`; see the quarantine log.
    """


class UserCodeError(InfeedError, reason="USER_CODE", code="FAILED_PRECONDITION"):
    """Your own function raised an exception; the message ends with its traceback.

    Remedy: correct the function and restart the server.
    """


class PipelineNotFoundError(InfeedError, reason="PIPELINE_NOT_FOUND", code="NOT_FOUND"):
    """No pipeline has that name; the message lists the names that exist.

    Remedy: correct the name.
    """


class InvalidRequestError(
    InfeedError, ValueError, reason="INVALID_REQUEST", code="INVALID_ARGUMENT"
):
    """An argument is invalid: no complete step, rank out of range, no port.

    Remedy: correct the option.
    """


class CursorError(InfeedError, reason="CURSOR_MISMATCH", code="FAILED_PRECONDITION"):
    """A cursor belongs to another pipeline, seed or fingerprint, or to a dataset without an order
    whose reader no longer exists; the message gives both values.

    Remedy: restore the definition and the data of that run, or start again without `state`.
    """


class FingerprintError(InfeedError, reason="FINGERPRINT_MISMATCH", code="FAILED_PRECONDITION"):
    """The server now has another definition, data or TensorFlow version than when the feed began.

    Remedy: serve the old definition, or connect again; `infeed list A,B` shows what differs between
    two servers.
    """


class ServerUnavailableError(
    InfeedError, ConnectionError, reason="SERVER_UNAVAILABLE", code="UNAVAILABLE"
):
    """No server answers at the target; the message gives the last reason.

    Remedy: start the server, check its address, or increase `timeout` and `reconnect_timeout`.
    """

    @property
    def exhausted(self) -> bool:
        """Whether the server answers but has run out of a resource: memory, or streams."""
        return self.metadata.get("code") == "RESOURCE_EXHAUSTED"


class FieldNotFoundError(InfeedError, KeyError, reason="FIELD_NOT_FOUND", code="NOT_FOUND"):
    """A batch has no field of that name; the message lists its fields.

    Remedy: correct the name.
    """


class SampleNotFoundError(InfeedError, reason="SAMPLE_NOT_FOUND", code="NOT_FOUND"):
    """No sample has that index, file or label.

    Remedy: give its index, the end of its file's path, or `label:VALUE`.
    """


class StallError(InfeedError, TimeoutError, reason="STALLED", code="DEADLINE_EXCEEDED"):
    """No batch arrived within the `timeout` of `next`.

    Remedy: call `next` again (no data is lost); check the server's `/metrics`.
    """


class ProtocolError(InfeedError, reason="PROTOCOL", code="DATA_LOSS"):
    """The peer sent invalid data: damaged in transit, or from another version.

    Remedy: use the same version of infeed at both ends; check for a proxy between them.
    """


class AuthenticationError(InfeedError, reason="UNAUTHENTICATED", code="UNAUTHENTICATED"):
    """A token is missing, unknown or revoked, a certificate is not trusted, or one end lacks TLS.

    Remedy: the message gives the cause; see the page on security.
    """


class PermissionDeniedError(
    InfeedError, PermissionError, reason="PERMISSION_DENIED", code="PERMISSION_DENIED"
):
    """The token is valid but gives no access to a pipeline of that name.

    Remedy: add the pipeline to the token's entry.
    """


class FeedClosedError(InfeedError, reason="FEED_CLOSED", code="CANCELLED"):
    """The feed was closed, had ended before this loop, or was opened before a fork.

    Remedy: connect again for each pass, in the process that reads; start workers with `spawn`.
    """


class MissingExtraError(InfeedError, ImportError, reason="MISSING_EXTRA", code="UNIMPLEMENTED"):
    """An optional package is not installed; the message gives the install command.

    Remedy: run the command in the message.
    """


class ServerError(InfeedError):
    """The server failed in a way that no other class describes.

    Remedy: read the server's log, and report the error.
    """


BY_REASON: Mapping[str, type[InfeedError]] = {
    error.reason: error for error in InfeedError.__subclasses__()
}
"""Reason → class, for client and server."""


def from_reason(reason: str, message: str, metadata: Mapping[str, str]) -> InfeedError:
    """Returns the error a server sent; a `ServerError` if its reason is unknown."""
    error = BY_REASON.get(reason, ServerError)(message)
    error.metadata = dict(metadata)
    return error


for _public in (InfeedError, *BY_REASON.values()):
    _public.__module__ = "infeed"  # the name that tracebacks and pickles show
del _public
