"""A stream's request, response and close."""

from __future__ import annotations

import logging
from typing import Any

import h2.events
import pytest

from infeed_server.http2.protocol import _MAX_HALF_OPEN_STREAMS
from infeed_server.http2.stream import StreamClosedError

RESPONSE = [(":status", "200")]
TRAILERS = [("grpc-status", "0")]


def test_request_and_response(served: Any) -> None:
    server, peer = served
    stream_id = peer.open("/s/m", ("x-key", "some thing"))
    stream = server.stream()
    assert stream.headers[":path"] == "/s/m"
    assert stream.headers["x-key"] == "some thing"
    assert stream.peer == "peer"
    peer.send_data(stream_id, b"hello")
    assert stream.receive() == b"hello"
    peer.send_data(stream_id, b"", end=True)
    assert stream.receive() is None
    assert stream.receive() is None
    stream.send_headers(RESPONSE)
    stream.send([b"one", memoryview(b"two"), bytearray(b"three")])
    stream.send([])
    stream.send_headers(TRAILERS, end=True)
    assert stream.closed
    assert not server.connection._streams
    assert dict(peer.expect(h2.events.ResponseReceived).headers) == {b":status": b"200"}
    assert peer.receive(stream_id, 11) == b"onetwothree"
    assert dict(peer.expect(h2.events.TrailersReceived).headers) == {b"grpc-status": b"0"}
    peer.expect(h2.events.StreamEnded)
    assert not peer.has(h2.events.StreamReset)


def test_response_before_the_request_ends_leaves_the_reset_to_the_peer(served: Any) -> None:
    server, peer = served
    stream_id = peer.open()
    peer.send_data(stream_id, b"x" * 1000)
    stream = server.stream()
    stream.send_headers([*RESPONSE, *TRAILERS], end=True)
    peer.expect(h2.events.StreamEnded, stream_id=stream_id)
    peer.send_data(stream_id, b"y" * 1000)  # on its way when the response ended
    other = peer.open(end=True)
    server.stream().send_headers(RESPONSE, end=True)
    peer.expect(h2.events.StreamEnded, stream_id=other)
    assert not peer.has(h2.events.StreamReset)


def test_oldest_of_many_half_open_streams_is_reset(served: Any) -> None:
    server, peer = served
    opened = [peer.open() for _ in range(_MAX_HALF_OPEN_STREAMS + 1)]
    for _ in opened:
        server.stream().send_headers([*RESPONSE, *TRAILERS], end=True)
    assert peer.expect(h2.events.StreamReset, stream_id=opened[0]).error_code == 0
    peer.expect(h2.events.StreamEnded, stream_id=opened[-1])
    assert not peer.has(h2.events.StreamReset)


def test_reset_wakes_a_blocked_receive(served: Any, background: Any) -> None:
    server, peer = served
    stream_id = peer.open()
    stream = server.stream()
    receiving = background(stream.receive)
    peer.reset(stream_id)
    with pytest.raises(StreamClosedError):
        receiving.result()
    for use in (
        stream.receive,
        lambda: stream.send([b"x"]),
        lambda: stream.send_headers(RESPONSE),
        lambda: stream.send_headers(TRAILERS, end=True),
    ):
        with pytest.raises(StreamClosedError):
            use()
    stream.reset(2)  # without effect


def test_reset_by_the_server_closes_the_stream(served: Any) -> None:
    server, peer = served
    stream_id = peer.open()
    stream = server.stream()
    stream.reset(11)
    assert stream.closed
    assert not stream.on_data(b"late", 4)
    assert peer.expect(h2.events.StreamReset, stream_id=stream_id).error_code == 11


def test_close_callbacks_run_once(
    served: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, peer = served
    stream_id = peer.open()
    stream = server.stream()
    called: list[str] = []

    def fail() -> None:
        called.append("fails")
        raise RuntimeError("on purpose")

    assert stream.add_close_callback(fail)
    assert stream.add_close_callback(lambda: called.append("second"))
    assert called == []
    with caplog.at_level(logging.CRITICAL + 1):
        peer.reset(stream_id)
        eventually(lambda: len(called) == 2, "both callbacks are called")
    assert called == ["fails", "second"]
    assert not stream.add_close_callback(lambda: called.append("late"))
    peer.open(end=True)
    server.stream().send_headers(RESPONSE, end=True)  # the connection continues
    peer.expect(h2.events.StreamEnded)
    assert called == ["fails", "second"]


def test_close_callbacks_run_when_the_connection_is_lost(served: Any, eventually: Any) -> None:
    server, peer = served
    peer.open()
    called: list[int] = []
    server.stream().add_close_callback(lambda: called.append(1))
    peer.socket.close()
    eventually(lambda: called == [1], "the callback is called")
    assert server.ended()


def test_empty_data_frames_are_skipped(served: Any) -> None:
    server, peer = served
    stream_id = peer.open()
    stream = server.stream()
    for _ in range(1000):
        peer.h2.send_data(stream_id, b"")
    peer.send_data(stream_id, b"x", end=True)
    assert stream.receive() == b"x"
    assert stream.receive() is None


@pytest.mark.parametrize("data", [b"x", b""])
def test_padding_is_acknowledged(served: Any, data: bytes) -> None:
    server, peer = served
    stream_id = peer.open()
    stream = server.stream()
    for _ in range(600):  # more padding than the window holds
        peer.h2.send_data(stream_id, data, pad_length=255)
        peer.flush()
        assert stream.receive() == data
        while peer.h2.local_flow_control_window(stream_id) < 1000:
            assert peer.read()
