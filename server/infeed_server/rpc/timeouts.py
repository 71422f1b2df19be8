"""The header `grpc-timeout`."""

from __future__ import annotations

import re

import grpc

from infeed_server.rpc.call import StatusError

_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def parse_timeout(header: str | None) -> float | None:
    """Returns seconds; None without the header. Raises `StatusError` if it is malformed."""
    if header is None:
        return None
    match = _TIMEOUT.fullmatch(header)
    if match is None:
        raise StatusError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"grpc-timeout {header[:20]!r} is not a number of up to 8 digits and a unit of HMSmun",
        )
    return int(match[1]) * _UNIT_SECONDS[match[2]]
