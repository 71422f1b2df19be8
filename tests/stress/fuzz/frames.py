"""HTTP/2 frames and gRPC messages as bytes, valid or invalid."""

from __future__ import annotations

from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY, ACK = 1, 4, 8, 0x20, 1

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME, MAX_HEADERS = range(1, 7)

MAX_WINDOW = (1 << 31) - 1
"""Largest window and largest stream id."""

Fields = list[tuple[str, str]]


def frame(
    kind: int, flags: int, stream: int, body: bytes = b"", length: int | None = None
) -> bytes:
    """Returns a frame; `length` replaces the body's length in its header."""
    size = (len(body) if length is None else length) & 0xFFFFFF
    head = size.to_bytes(3, "big") + bytes((kind, flags)) + (stream & 0xFFFFFFFF).to_bytes(4, "big")
    return head + body


def settings(**values: int) -> bytes:
    """Returns a SETTINGS frame; keywords are the names above in lower case."""
    return setting_pairs((globals()[name.upper()], value) for name, value in values.items())


def setting_pairs(pairs: Iterable[tuple[int, int]]) -> bytes:
    body = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in pairs)
    return frame(SETTINGS, 0, 0, body)


def block(fields: Iterable[tuple[str | bytes, str | bytes]]) -> bytes:
    """Returns a header block without HPACK table entries, so that frames can be reordered."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def headers(stream: int, fields: Fields, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(fields))


def integer(value: int, bits: int, first: int = 0) -> bytes:
    """Returns an HPACK integer with a prefix of `bits`."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes((first | value,))
    out = bytearray((first | limit,))
    value -= limit
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(body: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """Returns a gRPC message with its prefix; `length` replaces the length in it."""
    size = len(body) if length is None else length
    return bytes((compressed,)) + (size & 0xFFFFFFFF).to_bytes(4, "big") + body


def _text(text: str | bytes) -> bytes:
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return integer(len(data), 7) + data
