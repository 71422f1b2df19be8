"""How both ends find out that the other one is gone: HTTP/2 pings, in one place.

The numbers belong together: a server that allows fewer pings than its clients send closes their
connections (`ENHANCE_YOUR_CALM`).
"""

from __future__ import annotations

PING_EVERY_MS = 10_000
PING_TIMEOUT_MS = 5_000

CLIENT_PING_SECONDS = PING_EVERY_MS / 1000
"""A client that heard nothing for so long asks whether the server is there."""

CLIENT_PATIENCE_SECONDS = PING_TIMEOUT_MS / 1000
"""How long it waits for the answer: a server that vanished without a word (power, network) is
noticed within 15 seconds."""

SERVER_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 3 * PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", 2 * PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", PING_EVERY_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
]
"""Allows what clients send, and frees what a vanished trainer held."""

__all__ = [
    "CLIENT_PATIENCE_SECONDS",
    "CLIENT_PING_SECONDS",
    "PING_EVERY_MS",
    "PING_TIMEOUT_MS",
    "SERVER_OPTIONS",
]
