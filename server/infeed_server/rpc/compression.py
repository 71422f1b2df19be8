"""Compressed messages of clients, with a bound on what they inflate to."""

from __future__ import annotations

import zlib

import grpc

from infeed.errors import InvalidRequestError
from infeed_server.rpc.status_error import StatusError

_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""The formats for zlib. gRPC's deflate has zlib's header."""

ACCEPTED = ",".join(("identity", *_WINDOW_BITS))
"""The value of grpc-accept-encoding."""


def decompress(message: bytes, encoding: str | None, limit: int) -> bytes:
    """Returns a message of the header grpc-encoding, of at most `limit` bytes.

    Raises `StatusError`.
    """
    if encoding in {None, "identity"}:
        raise StatusError(
            grpc.StatusCode.INTERNAL, "compressed message without grpc-encoding: add that header"
        )
    if encoding not in _WINDOW_BITS:
        raise StatusError(
            grpc.StatusCode.UNIMPLEMENTED,
            f"grpc-encoding {encoding[:50]!r} is not supported; use one of {ACCEPTED}",
        )
    inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        result = inflater.decompress(message, limit + 1)
    except zlib.error as error:
        raise StatusError(
            grpc.StatusCode.INTERNAL, f"message that is not valid {encoding}: {error}"
        ) from None
    if len(result) > limit:
        raise too_large(f"more than {limit}", limit)
    if not inflater.eof:
        raise StatusError(grpc.StatusCode.INTERNAL, f"truncated {encoding} in a message")
    if inflater.unused_data:  # a second member, for example: it must not be dropped silently
        raise StatusError(grpc.StatusCode.INTERNAL, f"bytes after the {encoding} of a message")
    return result


def too_large(size: object, limit: int) -> StatusError:
    """Returns the error of a message of too many bytes."""
    return StatusError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"message of {size} bytes: at most {limit} are allowed",
        reason=InvalidRequestError.reason,
    )
