"""Keepalive intervals and timeouts of both ends: clients ping first, so servers rarely need to."""

from __future__ import annotations

CLIENT_PING_INTERVAL_SECONDS = 10.0
"""A client that has received nothing for this long pings the server."""

CLIENT_PING_TIMEOUT_SECONDS = 5.0
"""How long a client waits for the answer: it detects a vanished server within 15 seconds."""

SERVER_PING_INTERVAL_SECONDS = 3 * CLIENT_PING_INTERVAL_SECONDS
"""A server that has received nothing for this long pings the client."""

SERVER_PING_TIMEOUT_SECONDS = 2 * CLIENT_PING_TIMEOUT_SECONDS
"""How long a server waits for the answer to its ping, or for a client to accept data."""
