"""The bytes to and from one peer: all of them, or an error, and no wait without end."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest

from infeed_server.http2.wire import Wire

Pair = tuple[socket.socket, socket.socket]


def read(near: socket.socket, count: int) -> bytes:
    near.settimeout(60)
    data = bytearray()
    while len(data) < count:
        some = near.recv(1 << 16)
        assert some, f"{len(data)} of {count} bytes came"
        data += some
    return bytes(data)


def test_many_pieces_arrive_end_to_end(pair: Pair, background: Any) -> None:
    # More than one system call takes, and more bytes than the sockets hold.
    pieces = [os.urandom(size) for size in (0, 1, 9, 16384) * 700] + [bytearray(1 << 22), b"end"]
    wire = Wire(pair[1], 60)
    sending = background(wire.send, [*pieces, memoryview(b"view")])
    whole = b"".join([*map(bytes, pieces), b"view"])
    assert read(pair[0], len(whole)) == whole
    sending.result()


def test_nothing_is_sent_of_nothing(pair: Pair) -> None:
    wire = Wire(pair[1], 60)
    wire.send([])
    wire.send([b"", bytearray()])
    wire.send([b"x"])
    assert pair[0].recv(9) == b"x"


def test_bytes_are_received_until_the_peer_ends(pair: Pair) -> None:
    wire = Wire(pair[1], 60)
    with pytest.raises(TimeoutError, match=r"the peer said nothing for 0\.01 s"):
        wire.receive(0.01)
    with pytest.raises(TimeoutError):
        wire.receive(-1)
    pair[0].sendall(b"some")
    assert wire.receive(60) == b"some"
    pair[0].shutdown(socket.SHUT_WR)
    assert wire.receive(60) == b""


def test_a_peer_that_takes_nothing_is_given_up(pair: Pair) -> None:
    wire = Wire(pair[1], 0.1)
    with pytest.raises(TimeoutError, match=r"the peer took nothing for 0\.1 s"):
        wire.send([bytes(1 << 26)])


class SlowSocket:
    """A socket whose peer takes one byte after so many looks of the kernel at it."""

    family = socket.AF_UNIX

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self.left = looks
        self.sent = bytearray()

    def settimeout(self, seconds: float | None) -> None: ...

    def setsockopt(self, *option: Any) -> None: ...

    def sendmsg(self, pieces: list[memoryview]) -> int:
        if self.left:
            self.left -= 1
            raise BlockingIOError
        self.left = self._looks
        self.sent += pieces[0][:1]
        return 1


def test_a_peer_that_takes_something_within_four_looks_is_waited_for() -> None:
    peer: Any = SlowSocket(3)
    Wire(peer, 1.0).send([b"ab", b"c"])
    assert peer.sent == b"abc"


def test_a_peer_that_takes_nothing_within_four_looks_is_given_up() -> None:
    peer: Any = SlowSocket(4)
    with pytest.raises(TimeoutError, match="the peer took nothing for 1 s"):
        Wire(peer, 1.0).send([b"a"])
    assert (peer.left, peer.sent) == (0, b"")


def test_a_cut_wakes_who_sends(pair: Pair, background: Any, eventually: Any) -> None:
    wire = Wire(pair[1], 60)
    sending = background(wire.send, [bytes(1 << 26)])
    eventually(lambda: not wire.is_writable(), "the sockets are full")
    wire.cut()
    with pytest.raises(OSError, match="pipe"):
        sending.result()


def test_a_cut_wakes_who_receives(
    pair: Pair, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(pair[1], 60)
    waits = threading.Event()
    monkeypatch.setattr(wire, "_await", lambda seconds: (waits.set(), Wire._await(wire, seconds)))
    receiving = background(wire.receive, 60)
    assert waits.wait(60)
    wire.cut()
    assert receiving.result() == b""


def test_a_peer_that_vanishes_wakes_who_sends(pair: Pair, background: Any, eventually: Any) -> None:
    wire = Wire(pair[1], 60)
    sending = background(wire.send, [bytes(1 << 26)])
    eventually(lambda: not wire.is_writable(), "the sockets are full")
    pair[0].close()
    with pytest.raises(OSError, match=r"pipe|reset"):
        sending.result()


def test_a_wire_that_is_closed_touches_no_other_socket(pair: Pair) -> None:
    wire = Wire(pair[1], 60)
    wire.close()
    wire.close()
    with socket.socket() as other:  # may have the number that the wire's had
        wire.cut()
        assert not wire.is_writable()
        with pytest.raises(OSError, match="Bad file descriptor"):
            wire.send([b"x"])
        assert other.fileno() >= 0
