"""HTTP/2 frames and gRPC messages as bytes."""

from __future__ import annotations

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, _, RST, SETTINGS, _, PING, GOAWAY = range(8)
END_STREAM, ACK = 1, 1


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """Returns a frame."""
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def message(body: bytes) -> bytes:
    """Returns a gRPC message with its prefix."""
    return b"\0" + len(body).to_bytes(4, "big") + body
