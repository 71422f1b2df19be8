"""Reasons for which a server refuses connections, streams and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

Refusal: TypeAlias = Literal[
    "handshake",
    "protocol",
    "flood",
    "no_call",
    "headers",
    "connections",
    "streams",
    "calls",
    "descriptors",
    "threads",
    "unencrypted",
    "unauthenticated",
    "no_request",
    "stopping",
]
"""`handshake`: TLS failed. `protocol`: invalid HTTP/2. `flood`: more frames than the budget allows.
`no_call`: a connection without an admitted call in time. `headers`: malformed or too large.
`connections`, `streams`, `calls`: over a limit. `descriptors`, `threads`: the process is about to
run out of them. `unencrypted`, `unauthenticated`: no TLS, no valid token. `no_request`: a call
without its first message in time. `stopping`: during the end of the server."""

OnRefused: TypeAlias = Callable[[Refusal], None]


def ignore(reason: Refusal) -> None:
    """Counts nothing."""
    del reason


class RefusedPeerError(ConnectionAbortedError):
    """A connection ends for what its peer did, or did not do."""

    reason: ClassVar[Refusal]
