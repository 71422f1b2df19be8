"""One request and its answer."""

from __future__ import annotations

import logging
from typing import Any

import h2.events
import pytest

from infeed_server.http2.stream import GoneError

ANSWER = [(":status", "200")]
TRAILERS = [("grpc-status", "0")]


def test_a_request_and_its_answer(served: Any) -> None:
    connection, peer = served
    number = peer.open("/s/m", ("x-key", "some thing"))
    stream = connection.stream()
    assert stream.headers[":path"] == "/s/m"
    assert stream.headers["x-key"] == "some thing"
    assert stream.peer == "peer"
    peer.data(number, b"hello")
    assert stream.receive() == b"hello"
    peer.data(number, b"", end=True)
    assert stream.receive() is None
    assert stream.receive() is None
    stream.send_headers(ANSWER)
    stream.send([b"one", memoryview(b"two"), bytearray(b"three")])
    stream.send([])
    stream.send_headers(TRAILERS, end=True)
    assert stream.over
    assert not connection.connection._streams
    assert dict(peer.expect(h2.events.ResponseReceived).headers) == {b":status": b"200"}
    assert peer.receive(number, 11) == b"onetwothree"
    assert dict(peer.expect(h2.events.TrailersReceived).headers) == {b"grpc-status": b"0"}
    peer.expect(h2.events.StreamEnded)
    assert not peer.has(h2.events.StreamReset)


def test_an_answer_before_the_request_has_ended(served: Any) -> None:
    connection, peer = served
    number = peer.open()
    peer.data(number, b"x" * 1000)
    stream = connection.stream()
    stream.send_headers([*ANSWER, *TRAILERS], end=True)
    peer.expect(h2.events.StreamEnded, stream_id=number)
    assert peer.expect(h2.events.StreamReset, stream_id=number).error_code == 0
    other = peer.open(end=True)
    connection.stream().send_headers(ANSWER, end=True)
    peer.expect(h2.events.StreamEnded, stream_id=other)


def test_who_waits_for_a_request_learns_that_it_was_reset(served: Any, background: Any) -> None:
    connection, peer = served
    number = peer.open()
    stream = connection.stream()
    receiving = background(stream.receive)
    peer.reset(number)
    with pytest.raises(GoneError):
        receiving.result()
    for ask in (
        stream.receive,
        lambda: stream.send([b"x"]),
        lambda: stream.send_headers(ANSWER),
        lambda: stream.send_headers(TRAILERS, end=True),
    ):
        with pytest.raises(GoneError):
            ask()
    stream.reset(2)  # which changes nothing


def test_a_reset_by_the_server(served: Any) -> None:
    connection, peer = served
    number = peer.open()
    stream = connection.stream()
    stream.reset(11)
    assert stream.over
    assert not stream.feed(b"late", 4)
    assert peer.expect(h2.events.StreamReset, stream_id=number).error_code == 11


def test_callbacks_are_called_once_at_the_end(
    served: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    connection, peer = served
    number = peer.open()
    stream = connection.stream()
    called: list[str] = []

    def fail() -> None:
        called.append("fails")
        raise RuntimeError("on purpose")

    assert stream.call_at_end(fail)
    assert stream.call_at_end(lambda: called.append("second"))
    assert called == []
    with caplog.at_level(logging.CRITICAL + 1):
        peer.reset(number)
        eventually(lambda: len(called) == 2, "both are called")
    assert called == ["fails", "second"]
    assert not stream.call_at_end(lambda: called.append("late"))
    peer.open(end=True)
    connection.stream().send_headers(ANSWER, end=True)  # the connection goes on
    peer.expect(h2.events.StreamEnded)
    assert called == ["fails", "second"]


def test_callbacks_are_called_when_the_peer_vanishes(served: Any, eventually: Any) -> None:
    connection, peer = served
    peer.open()
    called: list[int] = []
    connection.stream().call_at_end(lambda: called.append(1))
    peer.socket.close()
    eventually(lambda: called == [1], "it is called")
    assert connection.ended()


def test_empty_data_is_not_kept(served: Any) -> None:
    connection, peer = served
    number = peer.open()
    stream = connection.stream()
    for _ in range(5000):
        peer.machine.send_data(number, b"")
    peer.data(number, b"x", end=True)
    assert stream.receive() == b"x"
    assert stream.receive() is None


@pytest.mark.parametrize("data", [b"x", b""])
def test_padding_is_given_back(served: Any, data: bytes) -> None:
    connection, peer = served
    number = peer.open()
    stream = connection.stream()
    for _ in range(600):  # more padding than the window holds
        peer.machine.send_data(number, data, pad_length=255)
        peer.flush()
        assert stream.receive() == data
        while peer.machine.local_flow_control_window(number) < 1000:
            assert peer.read()
