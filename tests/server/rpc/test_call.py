"""Messages, statuses and metadata of a call, on a fake stream."""

from __future__ import annotations

import base64
import itertools
import urllib.parse
import zlib
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import ProtocolError, ServerError, ServerUnavailableError
from infeed.rpc.status import error_from_details
from infeed.v1 import status_pb2
from infeed_server.http2.stream import StreamClosedError
from infeed_server.rpc import call as call_module
from infeed_server.rpc.call import CallCancelledError, ServerCall, StatusError, grpc_frames

DETAILS = "grpc-status-details-bin"


class FakeStream:
    """Receives the given data; then the request ends, or with `lost` the connection."""

    def __init__(self, data: Iterable[bytes] = (), *, lost: bool = False) -> None:
        self.headers = {":path": "/s/m"}
        self.peer = "10.0.0.1:5"
        self.closed = False
        self.sent: list[Any] = []
        self.callbacks: list[Callable[[], None]] = []
        self._data = list(data)
        self._lost = lost

    def receive(self, timeout: float | None = None) -> bytes | None:
        if self._data:
            return self._data.pop(0)
        if self._lost:
            raise StreamClosedError
        return None

    def send_headers(self, headers: list[tuple[str, str]], *, end: bool = False) -> None:
        if self._lost:
            raise StreamClosedError
        self.sent.append((dict(headers), end))

    def send(self, frames: list[bytes]) -> None:
        self.sent.append(b"".join(frames))

    def add_close_callback(self, callback: Callable[[], None]) -> bool:
        self.callbacks.append(callback)
        return not self.closed


def make_call(*data: bytes, lost: bool = False) -> tuple[ServerCall, FakeStream]:
    stream: Any = FakeStream(data, lost=lost)
    return ServerCall(stream), stream


def frame(content: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(content).to_bytes(4, "big") + content


def status_only(code: int, **more: str) -> tuple[dict[str, str], bool]:
    """Returns the headers of a response that is only a status."""
    first = dict(call_module._RESPONSE_HEADERS)
    rest = {name.replace("_", "-"): value for name, value in more.items()}
    return {**first, "grpc-status": str(code), **rest}, True


def without_details(stream: FakeStream) -> list[Any]:
    """Returns what was sent, without the details of a status."""
    return [
        ({name: value for name, value in headers.items() if name != DETAILS}, end)
        for headers, end in stream.sent
    ]


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30)))
def test_messages_arrive_however_they_are_split(messages: list[bytes], sizes: list[int]) -> None:
    data = b"".join(map(frame, messages))
    parts = []
    for size in sizes:
        parts.append(data[:size])
        data = data[size:]
    call, _ = make_call(*parts, data)
    assert list(call.messages()) == messages


def test_largest_message_is_accepted() -> None:
    call, _ = make_call(frame(bytes(65536)))
    assert list(call.messages()) == [bytes(65536)]


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (frame(b"x", flag=1), "INTERNAL", "compressed message without grpc-encoding"),
        (frame(bytes(65537)), "RESOURCE_EXHAUSTED", "65537 bytes: at most 65536"),
        (b"\0\xff\xff\xff\xff", "RESOURCE_EXHAUSTED", "4294967295 bytes"),
        (frame(b"xy")[:-1], "INTERNAL", "truncated message"),
        (b"\0\0", "INTERNAL", "truncated message"),
        (frame(b"whole") + b"\0", "INTERNAL", "truncated message"),
    ],
)
def test_invalid_messages_end_with_a_status(data: bytes, code: str, message: str) -> None:
    call, _ = make_call(data)
    with pytest.raises(StatusError, match=message) as caught:
        list(call.messages())
    assert caught.value.code.name == code


def test_too_large_message_is_refused_by_its_prefix() -> None:
    call, _ = make_call(frame(bytes(1 << 20))[:5], lost=True)
    with pytest.raises(StatusError, match="1048576"):
        next(call.messages())


def test_request_that_arrives_byte_by_byte_does_not_extend_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(call_module, "time", clock)
    call, stream = make_call(frame(b"whole"), *map(bytes, zip(frame(bytes(90)), strict=True)))
    messages = call.messages(20.0)
    assert next(messages) == b"whole"
    with pytest.raises(StatusError, match="the request did not end in time") as caught:
        next(messages)
    assert caught.value.code.name == "DEADLINE_EXCEEDED"
    assert len(stream._data) > 50


def test_lost_client_raises_in_every_method() -> None:
    call, stream = make_call(frame(b"whole") + b"\0", lost=True)
    messages = call.messages()
    assert next(messages) == b"whole"
    for use in (lambda: next(messages), lambda: call.send(grpc_frames([b"x"])), call.end):
        with pytest.raises(CallCancelledError):
            use()
    assert stream.sent == []


def test_messages_are_sent_without_copies() -> None:
    call, stream = make_call()
    buffer = bytearray(b"cd")
    frames = grpc_frames([b"ab", buffer], [], [b"e"])
    assert frames[2] is buffer  # not a copy
    call.send(frames)
    call.send(grpc_frames([b"f"]))
    call.end()
    assert stream.sent == [
        (dict(call_module._RESPONSE_HEADERS), False),
        b"\0\0\0\0\4abcd" + b"\0\0\0\0\0" + b"\0\0\0\0\1e",
        b"\0\0\0\0\1f",
        ({"grpc-status": "0"}, True),
    ]


def test_call_without_messages_sends_only_a_status() -> None:
    call, stream = make_call()
    assert call.ok
    call.end()
    assert without_details(stream) == [status_only(0)]


def test_status_of_the_handler_is_sent() -> None:
    call, stream = make_call()
    call.set_code(grpc.StatusCode.NOT_FOUND)
    call.set_details("no such thing")
    assert not call.ok
    call.end()
    assert without_details(stream) == [status_only(5, grpc_message="no such thing")]


def test_abort_sends_code_details_and_trailers() -> None:
    call, stream = make_call()
    with pytest.raises(StatusError) as caught:
        call.abort(grpc.StatusCode.ABORTED, "why")
    call.end(caught.value)
    assert without_details(stream) == [status_only(10, grpc_message="why")]

    trailers = (("grpc-status-details-bin", b"\0\xff\1\2"), ("key", "value"))
    call, stream = make_call()
    call.end(StatusError(grpc.StatusCode.DATA_LOSS, "lost", trailers))
    (headers, end) = stream.sent[0]
    assert end
    assert headers["key"] == "value"
    encoded = headers["grpc-status-details-bin"]
    assert "=" not in encoded
    assert base64.b64decode(encoded + "==") == b"\0\xff\1\2"


@pytest.mark.parametrize(
    ("details", "encoded"),
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
def test_details_are_percent_encoded(details: str, encoded: str) -> None:
    call, stream = make_call()
    call.end(StatusError(grpc.StatusCode.INTERNAL, details))
    assert without_details(stream) == [status_only(13, grpc_message=encoded)]


@given(st.text())
def test_encoded_details_are_ascii_and_reversible(details: str) -> None:
    call, stream = make_call()
    call.end(StatusError(grpc.StatusCode.INTERNAL, details))
    encoded = stream.sent[0][0].get("grpc-message", "")
    assert encoded == encoded.strip()
    assert all(0x20 <= ord(letter) < 0x7F for letter in encoded)
    assert urllib.parse.unquote(encoded) == details


def test_context_for_handlers() -> None:
    call, stream = make_call()
    assert call.peer() == "10.0.0.1:5"
    assert call.method == "/s/m"
    assert call.is_active()
    assert call.add_callback(print)
    assert stream.callbacks == [print]
    stream.closed = True
    assert not call.is_active()
    assert not call.add_callback(print)


def test_compressed_messages_are_read_among_others() -> None:
    call, stream = make_call(frame(zlib.compress(b"one"), flag=1), frame(b"two"))
    stream.headers["grpc-encoding"] = "deflate"
    assert list(call.messages()) == [b"one", b"two"]


def test_accepted_encodings_are_answered() -> None:
    call, stream = make_call()
    call.end()
    assert stream.sent[0][0]["grpc-accept-encoding"] == "identity,gzip,deflate"


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        ("UNAVAILABLE", "SERVER_UNAVAILABLE", ServerUnavailableError),
        ("UNIMPLEMENTED", "PROTOCOL", ProtocolError),
        ("NOT_FOUND", "NOT_FOUND", ServerError),
    ],
)
def test_status_of_the_handler_has_a_reason(code: str, reason: str, error: type) -> None:
    call, stream = make_call()
    call.set_code(grpc.StatusCode[code])
    call.set_details("a problem")
    call.end()
    details = base64.b64decode(stream.sent[0][0][DETAILS] + "==")
    (detail,) = status_pb2.Status.FromString(details).details
    assert status_pb2.ErrorInfo.FromString(detail.value).reason == reason
    received = error_from_details(details)
    assert (type(received), str(received)) == (error, "a problem")


def test_details_of_a_long_message_stay_small() -> None:
    call, stream = make_call()
    call.end(StatusError(grpc.StatusCode.INTERNAL, "ü" * 9000))
    assert len(stream.sent[0][0][DETAILS]) < 2000
