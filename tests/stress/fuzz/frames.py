"""Frames of HTTP/2 and messages of gRPC as bytes, right ones and any others."""

from __future__ import annotations

from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY, ACK = 1, 4, 8, 0x20, 1

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME, MAX_HEADERS = range(1, 7)

MOST = (1 << 31) - 1
"""The largest window, and the largest number of a stream."""

Fields = list[tuple[str, str]]


def frame(
    kind: int, flags: int, stream: int, body: bytes = b"", length: int | None = None
) -> bytes:
    """One frame; `length` says another length than the body's."""
    size = (len(body) if length is None else length) & 0xFFFFFF
    head = size.to_bytes(3, "big") + bytes((kind, flags)) + (stream & 0xFFFFFFFF).to_bytes(4, "big")
    return head + body


def settings(**values: int) -> bytes:
    """By the names above, in lower case."""
    return setting_pairs((globals()[name.upper()], value) for name, value in values.items())


def setting_pairs(pairs: Iterable[tuple[int, int]]) -> bytes:
    body = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in pairs)
    return frame(SETTINGS, 0, 0, body)


def window(stream: int, increment: int) -> bytes:
    return frame(WINDOW, 0, stream, (increment & 0xFFFFFFFF).to_bytes(4, "big"))


def reset(stream: int, code: int = 8) -> bytes:
    return frame(RST, 0, stream, code.to_bytes(4, "big"))


def block(fields: Iterable[tuple[str | bytes, str | bytes]]) -> bytes:
    """Headers that no table remembers, so that frames can be mixed as one likes."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def headers(stream: int, fields: Fields, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(fields))


def integer(value: int, bits: int, first: int = 0) -> bytes:
    """A number as HPACK has it, in the lower `bits` of its first byte."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    out = bytearray((first | most,))
    value -= most
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(body: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A message of gRPC with its prefix; `length` says another one."""
    size = len(body) if length is None else length
    return bytes((compressed,)) + (size & 0xFFFFFFFF).to_bytes(4, "big") + body


def _text(text: str | bytes) -> bytes:
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return integer(len(data), 7) + data
