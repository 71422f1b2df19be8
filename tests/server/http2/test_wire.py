"""The bytes to and from one peer: all of them, or an error, and no wait without end."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import pytest

from infeed_server.http2.wire import Wire

Pair = tuple[socket.socket, socket.socket]


def read(near: socket.socket, count: int) -> bytes:
    near.settimeout(10)
    data = bytearray()
    while len(data) < count:
        some = near.recv(1 << 16)
        assert some, f"{len(data)} of {count} bytes came"
        data += some
    return bytes(data)


def test_many_pieces_arrive_end_to_end(pair: Pair, background: Any) -> None:
    # More than one system call takes, and more bytes than the sockets hold.
    pieces = [os.urandom(size) for size in (0, 1, 9, 16384) * 700] + [bytearray(1 << 22), b"end"]
    wire = Wire(pair[1], 10)
    sending = background(wire.send, [*pieces, memoryview(b"view")])
    whole = b"".join([*map(bytes, pieces), b"view"])
    assert read(pair[0], len(whole)) == whole
    sending.result()


def test_nothing_is_sent_of_nothing(pair: Pair) -> None:
    wire = Wire(pair[1], 10)
    wire.send([])
    wire.send([b"", bytearray()])
    wire.send([b"x"])
    assert pair[0].recv(9) == b"x"


def test_bytes_are_received_until_the_peer_ends(pair: Pair) -> None:
    wire = Wire(pair[1], 10)
    with pytest.raises(TimeoutError, match=r"the peer said nothing for 0\.01 s"):
        wire.receive(0.01)
    with pytest.raises(TimeoutError):
        wire.receive(-1)
    pair[0].sendall(b"some")
    assert wire.receive(10) == b"some"
    pair[0].shutdown(socket.SHUT_WR)
    assert wire.receive(10) == b""


def test_a_peer_that_takes_nothing_is_given_up(pair: Pair) -> None:
    wire = Wire(pair[1], 0.1)
    with pytest.raises(TimeoutError, match=r"the peer took nothing for 0\.1 s"):
        wire.send([bytes(1 << 26)])


def test_a_peer_that_takes_it_slowly_is_not(pair: Pair, background: Any) -> None:
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    data = os.urandom(1 << 20)
    sending = background(Wire(pair[1], 0.3).send, [data])
    got = bytearray()
    for _ in range(4):  # longer in all than the wire waits for something to be taken
        time.sleep(0.15)
        got += read(pair[0], 1 << 17)
    assert got + read(pair[0], len(data) - len(got)) == data
    sending.result()


def test_a_cut_wakes_who_sends(pair: Pair, background: Any, eventually: Any) -> None:
    wire = Wire(pair[1], 60)
    sending = background(wire.send, [bytes(1 << 26)])
    eventually(lambda: not wire.is_writable(), "the sockets are full")
    wire.cut()
    with pytest.raises(OSError, match="pipe"):
        sending.result()


def test_a_cut_wakes_who_receives(pair: Pair, background: Any) -> None:
    wire = Wire(pair[1], 60)
    receiving = background(wire.receive, 60)
    time.sleep(0.02)
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
