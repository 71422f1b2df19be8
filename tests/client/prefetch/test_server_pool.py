"""Server pool: threads that wait for a step or their turn are woken, and take no other lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.client.plans import fake_spec, plan_of
from tests.client.waiting import HANG_SECONDS, Clock, blocked_in, until

from infeed.prefetch import server_pool
from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.ready_batches import FeedItem
from infeed.prefetch.server_pool import REPORT_DUE, ServerPool
from infeed.prefetch.stream import Stream
from infeed.shared.errors import ServerUnavailableError
from infeed.wire.assembler import ReceivedBatch

LOST = ServerUnavailableError("cut")


class Pool(ServerPool):
    """A pool of the servers a and b, with a clock that stands still."""

    def __init__(self, servers: str = "ab", *, multi_server: bool = True) -> None:
        plan = plan_of(fake_spec(multi_server=multi_server))
        self.consumed = 0
        self.delivered: list[FeedItem] = []
        self.clock = Clock()
        coordinator = Coordinator("target", plan, self.delivered.append, self.clock.monotonic)
        super().__init__(coordinator, lambda: self.consumed)
        with self.locked():
            coordinator.add_servers(list(servers))

    def connect(self, server: str, number: int = 0) -> Stream:
        stream = self.wait_for_turn(server, number)
        assert stream is not None
        with self.locked() as coordinator:
            coordinator.on_connected(stream)
            coordinator.on_stream_accepted(stream)
        return stream

    def receive(self, stream: Stream, step: int) -> None:
        batch: Any = None
        with self.locked() as coordinator:
            coordinator.on_batch(stream, ReceivedBatch(step, batch, 32))

    def end(self, stream: Stream, error: Exception) -> None:
        with self.locked() as coordinator:
            coordinator.on_stream_ended(stream, error)


class BlockedCall:
    """A call of the pool that blocks, on a thread of its own."""

    def __init__(self, call: Callable[[], Any], method: str = "wait_for_step") -> None:
        self._result: Any = self
        self.thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self.thread.start()
        until(lambda: blocked_in(self.thread, "wait", method))

    def _run(self, call: Callable[[], Any]) -> None:
        self._result = call()

    def result(self) -> Any:
        self.thread.join(HANG_SECONDS)
        return self._result


def test_received_batch_wakes_a_reader_at_its_quota() -> None:
    pool = Pool()
    stream = pool.connect("a")
    assert [pool.wait_for_step(stream) for _ in range(4)] == [0, 1, 2, 3]
    waiting = BlockedCall(lambda: pool.wait_for_step(stream))
    pool.receive(stream, 0)
    assert waiting.result() == 4


def consume(pool: Pool, stream: Stream) -> None:
    pool.consumed = 1
    pool.wake()


def end_stream(pool: Pool, stream: Stream) -> None:
    with pool.locked():
        stream.ended = True


def drain(pool: Pool, stream: Stream) -> None:
    with pool.locked():
        stream.draining = True


def fail(pool: Pool, stream: Stream) -> None:
    with pool.locked() as coordinator:
        coordinator.fail(LOST)


def close(pool: Pool, stream: Stream) -> None:
    with pool.locked() as coordinator:
        coordinator.close()


@pytest.mark.parametrize(
    ("waker", "expected"),
    [(consume, 8), (end_stream, None), (drain, None), (fail, None), (close, None)],
)
def test_reader_that_waits_for_a_step_is_woken(waker: Any, expected: int | None) -> None:
    pool = Pool("a")
    stream = pool.connect("a")
    for step in range(8):
        assert pool.wait_for_step(stream) == step
        pool.receive(stream, step)
    waiting = BlockedCall(lambda: pool.wait_for_step(stream))
    waker(pool, stream)
    assert waiting.result() == expected


def test_all_connections_that_wait_for_a_step_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_pool, "_CHECK_INTERVAL_SECONDS", 10 * HANG_SECONDS)
    pool = Pool("a")
    streams = [pool.connect("a", number) for number in range(2)]
    for step in range(8):
        assert pool.wait_for_step(streams[0]) == step
        pool.receive(streams[0], step)
    waiting = [BlockedCall(partial(pool.wait_for_step, stream)) for stream in streams]
    pool.consumed = 2
    pool.wake()
    assert sorted(call.result() for call in waiting) == [8, 9]


def test_one_connection_to_a_server_reports_until_it_is_lost() -> None:
    pool = Pool("a")
    second, first = pool.connect("a", 1), pool.connect("a", 0)
    first.report_interval = second.report_interval = 1.0
    assert pool.wait_for_step(second) == REPORT_DUE
    assert pool.wait_for_step(first) == 0
    pool.end(second, LOST)
    assert pool.wait_for_step(first) == REPORT_DUE


def test_all_connections_that_wait_for_their_turn_are_woken() -> None:
    pool = Pool("a")
    pool.end(pool.connect("a"), LOST)
    pool.clock.now += 1.0
    tried = pool.wait_for_turn("a")
    waiting = [
        BlockedCall(partial(pool.wait_for_turn, "a", number), "wait_for_turn") for number in (1, 2)
    ]
    assert tried is not None
    with pool.locked() as coordinator:
        coordinator.on_stream_accepted(tried)
    assert [call.result().number for call in waiting] == [1, 2]


def test_threads_are_woken_while_servers_are_added() -> None:
    """On free-threaded Python, one may be added at any point of `wake`."""
    names = [chr(code) for code in range(0x4E00, 0x4E00 + 2000)]
    pool = Pool("".join(names))
    added = threading.Thread(target=lambda: [pool.wait_for_turn(name) for name in names])
    added.start()
    while added.is_alive():
        pool.wake()
    added.join()
