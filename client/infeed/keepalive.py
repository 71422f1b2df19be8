"""How both ends find out that the other one is gone: HTTP/2 pings, in one place.

The numbers belong together: with clients that ask first, servers seldom have to.
"""

from __future__ import annotations

CLIENT_PING_SECONDS = 10.0
"""A client that heard nothing for so long asks whether the server is there."""

CLIENT_PATIENCE_SECONDS = 5.0
"""How long it waits for the answer: a server that vanished without a word (power, network) is
noticed within 15 seconds."""

SERVER_PING_SECONDS = 3 * CLIENT_PING_SECONDS
"""A server that heard nothing from a peer for so long asks whether it is there: later than clients
do, so that with them there is nothing to ask."""

SERVER_PATIENCE_SECONDS = 2 * CLIENT_PATIENCE_SECONDS
"""How long it waits for the answer, and for a peer that takes nothing of what it is sent. Then
what a vanished trainer held is freed."""

__all__ = [
    "CLIENT_PATIENCE_SECONDS",
    "CLIENT_PING_SECONDS",
    "SERVER_PATIENCE_SECONDS",
    "SERVER_PING_SECONDS",
]
