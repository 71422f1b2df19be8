"""Tests of `Channel`: objects and arrays over a socket pair."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from infeed_python.worker_process import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ends = tuple(map(Channel, socket.socketpair()))
    yield ends
    for end in ends:
        end.close()


def test_messages_arrive_whole(ends: tuple[Channel, Channel]) -> None:
    message = {
        "large": np.arange(3_000_000),  # more than a socket's buffer
        "empty": np.zeros((0, 3)),
        "strings": np.array([b"a\0", b"x" * 300_000, b""], object),
        "number": 7,
    }
    many = [np.full(3, number) for number in range(2000)]
    with ThreadPoolExecutor(1) as pool:
        sent = [pool.submit(ends[0].send, one) for one in (message, None, many)]
        received, nothing, arrays = (ends[1].receive() for _ in range(3))
        for call in sent:
            call.result()
    assert nothing is None
    assert received.keys() == message.keys()
    for name in ("large", "empty", "strings"):
        np.testing.assert_array_equal(received[name], message[name])
        assert received[name].flags.writeable
    assert [array.tolist() for array in arrays] == [[number] * 3 for number in range(2000)]


def test_end_is_an_error(ends: tuple[Channel, Channel]) -> None:
    ends[0].close()
    with pytest.raises(EOFError):
        ends[1].receive()
    with pytest.raises(OSError):  # noqa: PT011 - a broken pipe, or a reset connection
        ends[1].send(np.zeros(1_000_000))


def test_end_inside_a_message_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"\2\0\0\0\5")
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            Channel(theirs).receive()
