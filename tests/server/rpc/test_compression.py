"""Compressed messages: formats, and bounds on what they inflate to."""

from __future__ import annotations

import gzip
import zlib

import pytest

from infeed_server.rpc.call import StatusError
from infeed_server.rpc.compression import decompress

LIMIT = 1000


@pytest.mark.parametrize("content", [b"", b"text", bytes(LIMIT)])
def test_both_formats_are_read(content: bytes) -> None:
    assert decompress(gzip.compress(content, mtime=0), "gzip", LIMIT) == content
    assert decompress(zlib.compress(content), "deflate", LIMIT) == content


@pytest.mark.parametrize(
    ("message", "encoding", "code", "problem"),
    [
        (
            gzip.compress(bytes(LIMIT + 1), mtime=0),
            "gzip",
            "RESOURCE_EXHAUSTED",
            "more than 1000 bytes",
        ),
        (b"x", "br", "UNIMPLEMENTED", "'br' is not supported; use one of identity,gzip,deflate"),
        (b"x", "identity", "INTERNAL", "without grpc-encoding"),
        (b"x", None, "INTERNAL", "without grpc-encoding"),
        (b"not gzip", "gzip", "INTERNAL", "not valid gzip"),
        (gzip.compress(b"text", mtime=0)[:-3], "gzip", "INTERNAL", "truncated gzip"),
        (b"", "gzip", "INTERNAL", "truncated gzip"),
        (2 * gzip.compress(b"text", mtime=0), "gzip", "INTERNAL", "bytes after the gzip"),
    ],
)
def test_invalid_messages_are_refused(
    message: bytes, encoding: str | None, code: str, problem: str
) -> None:
    with pytest.raises(StatusError, match=problem) as caught:
        decompress(message, encoding, LIMIT)
    assert caught.value.code.name == code


def test_bomb_is_inflated_up_to_the_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    inflated: list[int] = []

    class Inflater:
        eof = False
        unused_data = b""

        def decompress(self, message: bytes, limit: int) -> bytes:
            inflated.append(limit)
            return bytes(limit)

    monkeypatch.setattr(zlib, "decompressobj", lambda _: Inflater())
    with pytest.raises(StatusError, match="at most 1000 are allowed"):
        decompress(b"bomb", "gzip", LIMIT)
    assert inflated == [LIMIT + 1]
