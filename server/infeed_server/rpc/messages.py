"""Parsing of the messages of a call."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from infeed.shared.errors import InvalidRequestError


def parse_message(request_type: Any, message: bytes) -> Any:
    """Parses a message of the class `request_type`. Raises `InvalidRequestError`.

    gRPC's own deserializer maps garbage to INTERNAL and logs a traceback.
    """
    try:
        return request_type.FromString(message)
    except DecodeError:
        name = request_type.DESCRIPTOR.name
        raise InvalidRequestError(
            f"a message of {len(message)} bytes is not a valid {name}"
        ) from None
