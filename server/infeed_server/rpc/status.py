"""Errors as gRPC statuses: the only module that maps Python errors to codes and details."""

from __future__ import annotations

import logging
import re
import secrets
import string
from urllib.parse import quote

from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from infeed.shared.errors import DOMAIN, InfeedError, ServerError, UserCodeError, shorten
from infeed_server.engines.monitor import Refusal

log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 5500
_MAX_METADATA_BYTES = 2600
"""Maximum encoded sizes in bytes. Most clients refuse trailers above 8 KiB in total."""

_PRINTABLE = (string.printable.strip() + " ").replace("%", "")
"""Characters that gRPC does not encode."""

_QUOTED_PATH = re.compile(r"""(["'])(/[^"'\n]*/)([^"'/\n]+)\1""")
_BARE_PATH = re.compile(r"(?<![\w.:/~\"'-])(/(?:[^/\s\"',:;()<>\[\]]+/)+)([^/\s\"',:;()<>\[\]]+)")


class CallError(Exception):
    """Ends a call with the status of an error."""

    def __init__(
        self, error: InfeedError, code: str | None = None, refusal: Refusal | None = None
    ) -> None:
        """`code` replaces the code of the error's class; `refusal` is the reason for the
        metrics."""
        super().__init__(str(error))
        self.status = to_status(error)
        self.refusal = refusal
        if code is not None:
            self.status.code = code_pb2.Code.Value(code)


def to_call_error(error: Exception) -> CallError:
    """Returns the exception that ends a call after `error`. Logs errors of unexpected types."""
    if isinstance(error, CallError):
        return error
    if not isinstance(error, InfeedError):
        log_id = secrets.token_hex(4)
        log.error("a call failed (%s)", log_id, exc_info=error)
        error = ServerError(
            f"the server failed ({type(error).__name__}); its log has the details under {log_id}",
            log=log_id,
        )
    if isinstance(error, UserCodeError):
        # In full, for the owner of the code; the status may be truncated.
        log.warning("a call ended with: %s", _replace_surrogates(error.message))
    return CallError(error)


def to_status(error: InfeedError) -> status_pb2.Status:
    """Returns google.rpc.Status with one ErrorInfo, truncated to what trailers can carry."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    metadata = {key: _replace_surrogates(value) for key, value in error.metadata.items()}
    fits = sum(map(_encoded_bytes, metadata.values())) <= _MAX_METADATA_BYTES
    limit = _MAX_METADATA_BYTES // max(1, len(metadata))
    for key, value in metadata.items():
        info.metadata[key] = value if fits else _truncate(value, limit)
    detail = any_pb2.Any()
    detail.Pack(info)
    # Stripped: HTTP/2 forbids spaces at the ends of a header, which C-core does not encode.
    message = to_client_text(error.message, keep=error.metadata.get("file", "")).strip(" ")
    code = code_pb2.Code.Value(error.code)
    return status_pb2.Status(code=code, message=message, details=[detail])


def to_client_text(text: str, keep: str = "") -> str:
    """Returns text for a client: without the folders of the server's own files, as in tracebacks,
    and truncated to what trailers can carry. `keep`, the path of the data file concerned, stays."""

    def strip(match: re.Match[str]) -> str:
        folder, name = match.groups()[-2:]
        return match[0] if folder + name in keep else match[0].replace(folder + name, name)

    text = _replace_surrogates(_BARE_PATH.sub(strip, _QUOTED_PATH.sub(strip, text)))
    return _truncate(text, _MAX_MESSAGE_BYTES)


def _replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, which file names can contain and UTF-8 cannot."""
    return text.encode(errors="replace").decode()


def _encoded_bytes(text: str) -> int:
    # It is sent twice: percent-encoded in grpc-message, and base64 in grpc-status-details-bin.
    return len(quote(text, safe=_PRINTABLE)) + len(text.encode()) * 4 // 3


def _truncate(text: str, limit: int) -> str:
    """Removes the middle of a text whose encoding is too long: a traceback's ends matter most."""
    result, keep = text, len(text)
    while keep and _encoded_bytes(result) > limit:
        keep = keep * 9 // 10
        result = shorten(text, keep)
    return result
