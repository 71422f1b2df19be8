"""Errors as gRPC statuses: the one place where a Python error becomes a code with details."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable

from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from infeed.errors import DOMAIN, InfeedError, ServerError, UserCodeError
from infeed_server.rpc.call import PeerGoneError, StatusError

log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 5500
_MAX_METADATA_BYTES = 1500
"""As they travel. Most peers refuse trailers above 8 KiB in all."""


def ended_by(error: Exception) -> StatusError | PeerGoneError:
    """What ends a call in which the error was raised."""
    if isinstance(error, (StatusError, PeerGoneError)):
        return error
    if not isinstance(error, InfeedError):
        number = secrets.token_hex(4)
        log.error("a call failed (%s)", number, exc_info=error)
        error = ServerError(
            f"the server failed ({type(error).__name__}); its log tells more, under {number}",
            log=number,
        )
    if isinstance(error, UserCodeError):
        # Whole, where its owner can read it; only without what no text can hold.
        log.warning("a call ended with: %s", _encodable(error.message))
    return refusal(error)


def refusal(error: InfeedError) -> StatusError:
    """What ends a call with the error."""
    status = rpc_status.to_status(to_status(error))
    return StatusError(status.code, status.details, status.trailing_metadata)


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
    told = _without_folders(error.message, keep=error.metadata.get("file", ""))
    message = _cut(_encodable(told), _MAX_MESSAGE_BYTES, _travelling_bytes)
    return status_pb2.Status(
        code=code_pb2.Code.Value(error.code), message=message, details=[detail]
    )


_QUOTED = re.compile(r"""(["'])(/[^"'\n]*/)([^"'/\n]+)\1""")
_BARE = re.compile(r"(?<![\w.:/~\"'-])(/(?:[^/\s\"',:;()<>\[\]]+/)+)([^/\s\"',:;()<>\[\]]+)")


def _without_folders(text: str, keep: str) -> str:
    """Without the folders of the server's own files, as in tracebacks: they are nobody's business
    but its owner's. The data file that the error is about is kept whole."""

    def short(match: re.Match[str]) -> str:
        folder, name = match.groups()[-2:]
        return match[0] if folder + name in keep else match[0].replace(folder + name, name)

    return _BARE.sub(short, _QUOTED.sub(short, text))


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
