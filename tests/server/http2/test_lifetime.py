"""The lifetime of connections: without a call, idle, and old."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import h2.events
import pytest

from infeed_server.http2 import lifetime as lifetime_module
from infeed_server.http2.connection import Connection
from infeed_server.http2.lifetime import Lifetime
from infeed_server.http2.refusals import Refusal
from infeed_server.http2.socket import ServerSocket
from infeed_server.http2.stream import Stream

RESPONSE = [(":status", "200")]
SECONDS = 0.15


class Live:
    """A connection with a lifetime, on a thread of its own."""

    def __init__(self, background: Any, peer_of: Any, lifetime: Lifetime) -> None:
        near, far = socket.socketpair()
        self.streams: list[Stream] = []
        self.refused: list[Refusal] = []
        self.connection = Connection(
            ServerSocket(far, 40),
            "peer",
            self.streams.append,
            lifetime=lifetime,
            on_refused=self.refused.append,
        )
        self.begin = time.monotonic()
        self.running = background(self.connection.run)
        self.peer = peer_of(near)


@pytest.fixture
def live(background: Any, peer_of: Any) -> Iterator[Callable[[Lifetime], Live]]:
    started: list[Live] = []

    def start(lifetime: Lifetime) -> Live:
        started.append(Live(background, peer_of, lifetime))
        return started[-1]

    yield start
    for each in started:
        each.peer.socket.close()
        each.running.result()


def test_connection_without_a_call_ends(live: Any) -> None:
    each = live(Lifetime(first_call=SECONDS))
    each.peer.read_to_end()
    assert time.monotonic() - each.begin >= SECONDS
    assert each.peer.has(h2.events.ConnectionTerminated)
    each.running.result()
    assert each.refused == ["no_call"]


def test_streams_without_an_admitted_call_do_not_keep_a_connection(live: Any) -> None:
    each = live(Lifetime(first_call=SECONDS))
    each.peer.open()
    each.peer.read_to_end()
    each.running.result()
    assert each.refused == ["no_call"]


def test_admitted_call_keeps_its_connection(live: Any, eventually: Any) -> None:
    each = live(Lifetime(first_call=SECONDS))
    stream_id = each.peer.open(end=True)
    eventually(lambda: each.streams, "the stream is opened")
    each.streams[0].admit(authenticated=True)
    eventually(lambda: time.monotonic() > each.begin + 2 * SECONDS, "the time is over")
    each.streams[0].send_headers(RESPONSE, end=True)
    each.peer.expect(h2.events.StreamEnded, stream_id=stream_id)
    assert each.refused == []
    each.peer.socket.close()
    each.running.result()


def test_idle_connection_is_drained_and_ends(
    live: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime_module, "_IDLE_GRACE_SECONDS", 0.01)
    each = live(Lifetime(idle=SECONDS))
    stream_id = each.peer.open(end=True)
    eventually(lambda: each.streams, "the stream is opened")
    eventually(lambda: time.monotonic() > each.begin + 2 * SECONDS, "the time is over")
    assert not each.connection._draining  # it is not idle
    each.streams[0].send_headers(RESPONSE, end=True)
    ended = time.monotonic()
    each.peer.expect(h2.events.StreamEnded, stream_id=stream_id)
    each.peer.expect(h2.events.ConnectionTerminated, error_code=0)
    assert time.monotonic() - ended >= 0.9 * SECONDS
    each.peer.read_to_end()
    each.running.result()
    assert each.refused == []


def test_old_connection_is_drained_then_ended(live: Any, eventually: Any) -> None:
    each = live(Lifetime(age=SECONDS, age_grace=SECONDS))
    first = each.peer.open(end=True)
    each.peer.expect(h2.events.ConnectionTerminated, error_code=0)
    assert time.monotonic() - each.begin >= 0.9 * SECONDS
    each.streams[0].send_headers([*RESPONSE, ("grpc-status", "0")], end=True)
    each.peer.expect(h2.events.StreamEnded, stream_id=first)  # open streams continue
    refused = each.peer.open()
    each.peer.expect(h2.events.StreamReset, stream_id=refused, error_code=7)
    each.peer.read_to_end()
    assert time.monotonic() - each.begin >= 1.9 * SECONDS
    each.running.result()
    assert each.refused == []


def test_ages_of_connections_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []

    class Recorded:
        def after(self, delay: float, callback: Any) -> None:
            seconds.append(delay)

    timers: Any = Recorded()
    for _ in range(50):
        lifetime_module.LifetimeTimers(Lifetime(age=100), timers, lambda: None).start()
    assert 90 <= min(seconds) < 95
    assert 105 < max(seconds) <= 110
