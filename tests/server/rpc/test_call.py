"""gRPC's messages, statuses and metadata, on a stream that is played."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed_server.http2.stream import GoneError
from infeed_server.rpc.call import PeerGoneError, ServerCall, StatusError, framed


class PlayedStream:
    """Gives what it was made with, as it was cut; `lost` ends it without an end of the request."""

    def __init__(self, data: Iterable[bytes] = (), *, lost: bool = False) -> None:
        self.headers = {":path": "/s/m"}
        self.peer = "somebody"
        self.over = False
        self.sent: list[Any] = []
        self.callbacks: list[Callable[[], None]] = []
        self._data = list(data)
        self._lost = lost

    def receive(self) -> bytes | None:
        if self._data:
            return self._data.pop(0)
        if self._lost:
            raise GoneError
        return None

    def send_headers(self, headers: list[tuple[str, str]], *, end: bool = False) -> None:
        if self._lost:
            raise GoneError
        self.sent.append((dict(headers), end))

    def send(self, pieces: list[bytes]) -> None:
        self.sent.append(b"".join(pieces))

    def call_at_end(self, callback: Callable[[], None]) -> bool:
        self.callbacks.append(callback)
        return not self.over


def call(*data: bytes, lost: bool = False) -> tuple[ServerCall, PlayedStream]:
    stream: Any = PlayedStream(data, lost=lost)
    return ServerCall(stream), stream


def message(content: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(content).to_bytes(4, "big") + content


def ended(code: int, **more: str) -> tuple[dict[str, str], bool]:
    """The headers of an answer that is a status only."""
    first = {":status": "200", "content-type": "application/grpc"}
    rest = {name.replace("_", "-"): value for name, value in more.items()}
    return {**first, "grpc-status": str(code), **rest}, True


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30)))
def test_messages_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(message, messages))
    parts = []
    for cut in cuts:
        parts.append(data[:cut])
        data = data[cut:]
    each, _ = call(*parts, data)
    assert list(each.messages()) == messages


def test_the_largest_message() -> None:
    each, _ = call(message(bytes(65536)))
    assert list(each.messages()) == [bytes(65536)]


@pytest.mark.parametrize(
    ("data", "code", "why"),
    [
        (message(b"x", flag=1), "UNIMPLEMENTED", "a compressed message"),
        (message(bytes(65537)), "RESOURCE_EXHAUSTED", "65537 bytes; at most 65536"),
        (b"\0\xff\xff\xff\xff", "RESOURCE_EXHAUSTED", "4294967295 bytes"),
        (message(b"xy")[:-1], "INTERNAL", "ends early"),
        (b"\0\0", "INTERNAL", "ends early"),
        (message(b"whole") + b"\0", "INTERNAL", "ends early"),
    ],
)
def test_messages_that_are_not_taken(data: bytes, code: str, why: str) -> None:
    each, _ = call(data)
    with pytest.raises(StatusError, match=why) as caught:
        list(each.messages())
    assert caught.value.code.name == code


def test_a_size_is_refused_before_the_message_has_come() -> None:
    each, _ = call(message(bytes(1 << 20))[:5], lost=True)
    with pytest.raises(StatusError, match="1048576"):
        next(each.messages())


def test_a_peer_that_is_gone() -> None:
    each, stream = call(message(b"whole") + b"\0", lost=True)
    messages = each.messages()
    assert next(messages) == b"whole"
    for ask in (lambda: next(messages), lambda: each.send(framed([b"x"])), each.end):
        with pytest.raises(PeerGoneError):
            ask()
    assert stream.sent == []


def test_an_answer_in_pieces() -> None:
    each, stream = call()
    part = bytearray(b"cd")
    pieces = framed([b"ab", part], [], [b"e"])
    assert pieces[2] is part  # no copy is made of it
    each.send(pieces)
    each.send(framed([b"f"]))
    each.end()
    assert stream.sent == [
        ({":status": "200", "content-type": "application/grpc"}, False),
        b"\0\0\0\0\4abcd" + b"\0\0\0\0\0" + b"\0\0\0\0\1e",
        b"\0\0\0\0\1f",
        ({"grpc-status": "0"}, True),
    ]


def test_a_status_alone() -> None:
    each, stream = call()
    assert each.ok
    each.end()
    assert stream.sent == [ended(0)]


def test_a_status_that_the_handler_sets() -> None:
    each, stream = call()
    each.set_code(grpc.StatusCode.NOT_FOUND)
    each.set_details("no such thing")
    assert not each.ok
    each.end()
    assert stream.sent == [ended(5, grpc_message="no such thing")]


def test_aborts() -> None:
    each, stream = call()
    with pytest.raises(StatusError) as caught:
        each.abort(grpc.StatusCode.ABORTED, "why")
    each.end(caught.value)
    assert stream.sent == [ended(10, grpc_message="why")]

    trailers = (("grpc-status-details-bin", b"\0\xff\1\2"), ("key", "value"))
    each, stream = call()
    each.end(StatusError(grpc.StatusCode.DATA_LOSS, "lost", trailers))
    (headers, end) = stream.sent[0]
    assert end
    assert headers["key"] == "value"
    coded = headers["grpc-status-details-bin"]
    assert "=" not in coded
    assert base64.b64decode(coded + "==") == b"\0\xff\1\2"


@pytest.mark.parametrize(
    ("details", "coded"),
    [
        ("plain text: ~!@#$^&*()", "plain text: ~!@#$^&*()"),
        ("100%", "100%25"),
        ("a\nb\x7f", "a%0Ab%7F"),
        ("grün 好", "gr%C3%BCn %E5%A5%BD"),
        ("  blanks   ", "%20%20blanks%20%20%20"),
        ("   ", "%20%20%20"),
        ("half \udcff", "half ?"),
    ],
)
def test_details_are_escaped(details: str, coded: str) -> None:
    each, stream = call()
    each.end(StatusError(grpc.StatusCode.INTERNAL, details))
    assert stream.sent == [ended(13, grpc_message=coded)]


@given(st.text())
def test_details_are_plain_ascii_and_come_back(details: str) -> None:
    each, stream = call()
    each.end(StatusError(grpc.StatusCode.INTERNAL, details))
    coded = stream.sent[0][0].get("grpc-message", "")
    assert coded == coded.strip()
    assert all(0x20 <= ord(letter) < 0x7F for letter in coded)
    assert urllib.parse.unquote(coded) == details


def test_what_a_handler_may_ask() -> None:
    each, stream = call()
    assert each.peer() == "somebody"
    assert each.method == "/s/m"
    assert each.is_active()
    assert each.add_callback(print)
    assert stream.callbacks == [print]
    stream.over = True
    assert not each.is_active()
    assert not each.add_callback(print)
