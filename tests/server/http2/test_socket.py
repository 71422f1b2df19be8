"""Sends and receives: all bytes or an error, with a timeout on every wait."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest

from infeed_server.http2.socket import ServerSocket

Pair = tuple[socket.socket, socket.socket]


def read(near: socket.socket, count: int) -> bytes:
    near.settimeout(60)
    data = bytearray()
    while len(data) < count:
        chunk = near.recv(1 << 16)
        assert chunk, f"received {len(data)} of {count} bytes"
        data += chunk
    return bytes(data)


def test_many_buffers_arrive_in_order(pair: Pair, background: Any) -> None:
    # More buffers than one system call sends, and more bytes than fit the socket buffers.
    buffers = [os.urandom(size) for size in (0, 1, 9, 16384) * 700] + [bytearray(1 << 22), b"end"]
    sock = ServerSocket(pair[1], 60)
    sending = background(sock.send, [*buffers, memoryview(b"view")])
    whole = b"".join([*map(bytes, buffers), b"view"])
    assert read(pair[0], len(whole)) == whole
    sending.result()


def test_empty_buffers_send_nothing(pair: Pair) -> None:
    sock = ServerSocket(pair[1], 60)
    sock.send([])
    sock.send([b"", bytearray()])
    sock.send([b"x"])
    assert pair[0].recv(9) == b"x"


def test_bytes_are_received_until_the_peer_shuts_down(pair: Pair) -> None:
    sock = ServerSocket(pair[1], 60)
    with pytest.raises(TimeoutError, match=r"the peer sent no data for 0\.01 s"):
        sock.receive(0.01)
    with pytest.raises(TimeoutError):
        sock.receive(-1)
    pair[0].sendall(b"some")
    assert sock.receive(60) == b"some"
    pair[0].shutdown(socket.SHUT_WR)
    assert sock.receive(60) == b""


def test_send_to_a_peer_that_does_not_read_times_out(pair: Pair) -> None:
    sock = ServerSocket(pair[1], 0.1)
    with pytest.raises(TimeoutError, match=r"the peer accepted no data for 0\.1 s"):
        sock.send([bytes(1 << 26)])


class SlowSocket:
    """A socket that accepts one byte after a number of failed attempts."""

    family = socket.AF_UNIX

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self.remaining = attempts
        self.sent = bytearray()

    def settimeout(self, timeout: float | None) -> None: ...

    def setsockopt(self, *option: Any) -> None: ...

    def sendmsg(self, buffers: list[memoryview]) -> int:
        if self.remaining:
            self.remaining -= 1
            raise BlockingIOError
        self.remaining = self._attempts
        self.sent += buffers[0][:1]
        return 1


def test_progress_within_four_attempts_continues_the_send() -> None:
    peer: Any = SlowSocket(3)
    ServerSocket(peer, 1.0).send([b"ab", b"c"])
    assert peer.sent == b"abc"


def test_four_attempts_without_progress_time_out() -> None:
    peer: Any = SlowSocket(4)
    with pytest.raises(TimeoutError, match="the peer accepted no data for 1 s"):
        ServerSocket(peer, 1.0).send([b"a"])
    assert (peer.remaining, peer.sent) == (0, b"")


def test_abort_wakes_a_blocked_send(pair: Pair, background: Any, eventually: Any) -> None:
    sock = ServerSocket(pair[1], 60)
    sending = background(sock.send, [bytes(1 << 26)])
    eventually(lambda: not sock.is_writable(), "the sockets are full")
    sock.abort()
    with pytest.raises(OSError, match="pipe"):
        sending.result()


def test_abort_wakes_a_blocked_receive(
    pair: Pair, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sock = ServerSocket(pair[1], 60)
    is_waiting = threading.Event()
    monkeypatch.setattr(
        sock,
        "_wait_readable",
        lambda timeout: (is_waiting.set(), ServerSocket._wait_readable(sock, timeout)),
    )
    receiving = background(sock.receive, 60)
    assert is_waiting.wait(60)
    sock.abort()
    assert receiving.result() == b""


def test_lost_peer_wakes_a_blocked_send(pair: Pair, background: Any, eventually: Any) -> None:
    sock = ServerSocket(pair[1], 60)
    sending = background(sock.send, [bytes(1 << 26)])
    eventually(lambda: not sock.is_writable(), "the sockets are full")
    pair[0].close()
    with pytest.raises(OSError, match=r"pipe|reset"):
        sending.result()


def test_closed_socket_does_not_touch_a_reused_descriptor(pair: Pair) -> None:
    sock = ServerSocket(pair[1], 60)
    sock.close()
    sock.close()
    with socket.socket() as other:  # may reuse the descriptor
        sock.abort()
        assert not sock.is_writable()
        with pytest.raises(OSError, match="Bad file descriptor"):
            sock.send([b"x"])
        assert other.fileno() >= 0
