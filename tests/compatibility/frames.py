"""HTTP/2 frames and gRPC messages as bytes, valid or invalid."""

from __future__ import annotations

import hpack
from hyperframe.frame import SettingsFrame

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, _, RST, SETTINGS, _, PING, GOAWAY = range(8)
END_STREAM, END_HEADERS, ACK = 1, 4, 1

Fields = list[tuple[str, str]]


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """Returns a frame."""
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def settings(initial_window: int = 65_535, max_frame: int = 16_384) -> bytes:
    """Returns a SETTINGS frame."""
    values = {
        SettingsFrame.INITIAL_WINDOW_SIZE: initial_window,
        SettingsFrame.MAX_FRAME_SIZE: max_frame,
    }
    return SettingsFrame(settings=values).serialize()


def headers(stream: int, fields: Fields, flags: int = END_HEADERS) -> bytes:
    """Returns a HEADERS frame that needs no entries of earlier ones."""
    return frame(HEADERS, flags, stream, hpack.Encoder().encode(fields, huffman=False))


def message(body: bytes) -> bytes:
    """Returns a gRPC message with its prefix."""
    return b"\0" + len(body).to_bytes(4, "big") + body
