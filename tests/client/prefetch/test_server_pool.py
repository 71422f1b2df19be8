"""Server pool, called by hand: assigned steps, delivered items, and what ends the feed."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, Clock, blocked_in, until

from infeed.batch import Batch
from infeed.cursor import Cursor, Shard
from infeed.errors import (
    FeedClosedError,
    FingerprintError,
    SampleError,
    ServerUnavailableError,
)
from infeed.prefetch import server_pool as module
from infeed.prefetch.closable_queue import ClosableQueue
from infeed.prefetch.feed_plan import FeedPlan, plan_feed
from infeed.prefetch.server_pool import EndOfFeed, FeedItem, ServerPool
from infeed.spec import Guarantee
from infeed.testing import FakeTransport
from infeed.wire.assembler import ReceivedBatch

LOST = ServerUnavailableError("cut")
MISMATCH = FingerprintError("another version")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class RecordedPool(ServerPool):
    """A server pool, and the items that it delivers."""

    def __init__(self, plan: FeedPlan) -> None:
        self.delivered: ClosableQueue[FeedItem] = ClosableQueue()
        super().__init__("target", plan, self.delivered)

    def items(self) -> list[Any]:
        """Returns the items since the last call: steps of batches, an error, or the end."""
        items: list[Any] = []
        while self.delivered._items:
            item = self.delivered.get(0)
            items.append(item.step if isinstance(item, ReceivedBatch) else item)
        return items


def batch(step: int, size: int = 32) -> ReceivedBatch:
    ids = np.arange(4)
    return ReceivedBatch(
        step, Batch({}, start=4 * step, epoch=0, sample_ids=ids, mask=ids >= 0), size
    )


@pytest.fixture
def new_pool(clock: Clock) -> Callable[..., RecordedPool]:
    """Returns a factory of pools: `new_pool("ab")` has two servers. Only one of them serves at a
    time if `multi_server` is False."""

    def make(
        servers: str = "a",
        *,
        epochs: int | None = None,
        position: int = 0,
        multi_server: bool = True,
    ) -> RecordedPool:
        spec = FakeTransport({"x": np.arange(50)}, batch_size=4).spec
        if not multi_server:
            guarantee = Guarantee("deterministic", "exactly_once", "replay")
            object.__setattr__(spec, "guarantee", guarantee)
        plan = plan_feed(
            spec,
            batch_size=None,
            shard=Shard(),
            seed=None,
            epochs=epochs,
            remainder=None,
            cursor=Cursor(spec.name, spec.fingerprint, spec.seed, position),
            finish="trainer",
            job_name=None,
            prefetch_bytes=8 * 32,
            reconnect_timeout=60.0,
        )
        pool = RecordedPool(plan)
        pool.add_servers(list(servers))
        return pool

    return make


def connect(pool: ServerPool, *servers: str) -> list[threading.Event]:
    """Opens a stream to each server; returns the events that end them."""
    streams = []
    for server in servers:
        streams.append(threading.Event())
        assert pool.wait_for_turn(server)
        pool.on_connected(server, streams[-1])
        pool.on_stream_opened(server)
    return streams


def test_feed_fails_when_its_only_server_stays_lost(new_pool: Any, clock: Clock) -> None:
    pool = new_pool()
    connect(pool, "a")
    clock.now += 1000
    pool.check_reconnect_timeout()
    pool.on_connection_lost("a", LOST)
    clock.now += 59.9
    pool.check_reconnect_timeout()
    assert (pool.ended, pool.items()) == (False, [])
    clock.now += 0.1
    pool.check_reconnect_timeout()
    (error,) = pool.items()
    assert isinstance(error, ServerUnavailableError)
    assert "target: connection lost at position 0" in error.message
    assert "within 60 s; last error: cut" in error.message
    assert pool.ended


def test_reconnect_timeout_runs_from_the_first_loss(new_pool: Any, clock: Clock) -> None:
    pool = new_pool()
    connect(pool, "a")
    pool.on_connection_lost("a", LOST)
    clock.now += 70
    connect(pool, "a")
    pool.check_reconnect_timeout()
    assert not pool.ended  # a server is connected
    pool.on_connection_lost("a", LOST)
    assert pool.ended


def test_received_batch_restarts_the_reconnect_timeout(new_pool: Any, clock: Clock) -> None:
    pool = new_pool()
    (stream,) = connect(pool, "a")
    pool.on_connection_lost("a", LOST)
    clock.now += 59
    (stream,) = connect(pool, "a")
    step = pool.wait_for_step("a", stream)
    pool.on_batch("a", step, batch(step))
    pool.on_connection_lost("a", LOST)
    clock.now += 59
    pool.check_reconnect_timeout()
    assert not pool.ended
    clock.now += 1
    pool.check_reconnect_timeout()
    assert pool.ended


def test_lost_server_does_not_fail_the_feed_while_another_serves(
    new_pool: Any, clock: Clock
) -> None:
    pool = new_pool("ab")
    connect(pool, "b")
    pool.on_connection_lost("a", LOST)
    clock.now += 1000
    pool.check_reconnect_timeout()
    pool.on_connection_lost("a", LOST)
    assert not pool.ended


def test_feed_fails_at_once_if_all_servers_are_excluded(new_pool: Any, caplog: Any) -> None:
    pool = new_pool("ab")
    with caplog.at_level(logging.WARNING, "infeed.prefetch.server_pool"):
        pool.exclude("a", MISMATCH)
        pool.exclude("a", MISMATCH)
    assert caplog.messages == ["a is excluded from the feed: another version"]  # once
    assert not pool.ended
    pool.exclude("b", MISMATCH)
    assert pool.items() == [MISMATCH]


def test_exclusion_is_raised_if_the_other_servers_stay_lost(new_pool: Any, clock: Clock) -> None:
    pool = new_pool("ab")
    pool.exclude("a", MISMATCH)
    pool.on_connection_lost("b", LOST)
    assert not pool.ended
    clock.now += 60
    pool.check_reconnect_timeout()
    assert pool.items() == [MISMATCH]


def test_exclusion_of_the_only_server_is_not_logged(new_pool: Any, caplog: Any) -> None:
    pool = new_pool("a")
    pool.exclude("a", MISMATCH)
    assert pool.items() == [MISMATCH]
    assert not caplog.records


def test_steps_of_a_lost_server_are_reassigned(new_pool: Any) -> None:
    pool = new_pool("ab")
    first, second = connect(pool, "a", "b")
    steps = {
        name: [pool.wait_for_step(name, stream) for _ in range(2)]
        for name, stream in (("a", first), ("b", second))
    }
    for step in steps["b"]:
        pool.on_batch("b", step, batch(step))
    assert pool.items() == []
    pool.on_connection_lost("a", LOST)
    assert [pool.wait_for_step("b", second) for _ in range(2)] == steps["a"] == [0, 1]
    for step in steps["a"]:
        pool.on_batch("b", step, batch(step))
    assert pool.items() == [0, 1, 2, 3]


def test_losses_and_reconnects_count_opened_streams_only(new_pool: Any) -> None:
    pool = new_pool("ab")
    connect(pool, "a")
    pool.on_connection_lost("b", LOST)  # it was never connected
    assert (pool.counters.losses, pool.counters.reconnects) == (0, 0)
    pool.on_connection_lost("a", LOST)
    assert (pool.counters.losses, pool.counters.reconnects) == (1, 0)
    pool.on_connection_lost("a", LOST)
    assert pool.counters.losses == 1
    connect(pool, "a")
    assert (pool.counters.losses, pool.counters.reconnects) == (1, 1)
    connect(pool, "b")
    assert pool.counters.reconnects == 1
    assert pool.counters.servers == ["a", "b"]


def test_lost_server_gets_no_step_before_it_accepts_a_stream(new_pool: Any) -> None:
    pool = new_pool("ab")
    for mark, error in ((pool.on_connection_lost, LOST), (pool.exclude, MISMATCH)):
        mark("a", error)
        stream = threading.Event()
        pool.wait_for_turn("a")
        pool.on_connected("a", stream)
        assert pool._scheduler.servers == []
        pool.on_stream_opened("a")
        assert pool._scheduler.servers == ["a"]


def test_ended_stream_adds_no_server(new_pool: Any) -> None:
    pool = new_pool()
    stream = threading.Event()
    pool.wait_for_turn("a")
    pool.end_stream(stream)
    assert stream.is_set()
    pool.on_connected("a", stream)
    assert pool._scheduler.servers == []
    assert pool.wait_for_step("a", stream) is None


def test_draining_server_gets_no_step_before_it_reconnects(new_pool: Any) -> None:
    pool = new_pool("ab")
    (stream,) = connect(pool, "a")
    assert pool.wait_for_step("a", stream) == 0
    pool.on_draining("a")
    assert pool.wait_for_step("a", stream) is None
    pool.on_batch("a", 0, batch(0))
    assert pool.items() == [0]
    (stream,) = connect(pool, "a")
    assert pool.wait_for_step("a", stream) == 1


def test_error_is_delivered_after_the_batches_before_it(new_pool: Any) -> None:
    pool = new_pool("ab")
    first, second = connect(pool, "a", "b")
    streams = [("a", first), ("b", second), ("b", second)]
    assert [pool.wait_for_step(*stream) for stream in streams] == [0, 1, 2]
    error = SampleError("bad")
    pool.on_batch_failed("b", error)
    assert pool.items() == []
    assert pool._scheduler.servers == ["a"]
    assert pool._scheduler.assign("a", 8) is None  # steps behind the error are not needed
    pool.on_batch("a", 0, batch(0))
    assert pool.items() == [0, error]
    assert pool.ended


def test_error_of_the_next_step_is_delivered_at_once(new_pool: Any) -> None:
    pool = new_pool("ab")
    first, second = connect(pool, "a", "b")
    assert [pool.wait_for_step("a", first), pool.wait_for_step("b", second)] == [0, 1]
    pool.on_batch("b", 1, batch(1))
    error = SampleError("bad")
    pool.on_batch_failed("a", error)
    assert pool.items() == [error]  # and not the buffered batch behind it


def test_end_of_data_is_valid_for_all_servers(new_pool: Any) -> None:
    pool = new_pool("ab")
    first, second = connect(pool, "a", "b")
    streams = [("a", first), ("b", second), ("a", first)]
    assert [pool.wait_for_step(*stream) for stream in streams] == [0, 1, 2]
    pool.on_end_of_data(2, 8)
    assert pool._scheduler.assign("b", 8) is None
    assert pool.items() == []
    pool.on_batch("b", 1, batch(1))
    pool.on_batch("a", 0, batch(0))
    *steps, end = pool.items()
    assert (steps, end) == ([0, 1], EndOfFeed(8))


def test_end_of_data_after_the_last_batch_is_delivered_at_once(new_pool: Any) -> None:
    pool = new_pool()
    (stream,) = connect(pool, "a")
    assert [pool.wait_for_step("a", stream), pool.wait_for_step("a", stream)] == [0, 1]
    pool.on_batch("a", 0, batch(0))
    assert pool.items() == [0]
    pool.on_end_of_data(1, 4)
    (end,) = pool.items()
    assert isinstance(end, EndOfFeed)


def test_batch_behind_the_end_is_not_buffered(new_pool: Any) -> None:
    pool = new_pool()
    (stream,) = connect(pool, "a")
    assert [pool.wait_for_step("a", stream), pool.wait_for_step("a", stream)] == [0, 1]
    pool.on_end_of_data(1, 4)
    pool.on_batch("a", 1, batch(1))
    assert pool.counters.prefetched_bytes == 0


def test_error_without_a_step_in_flight_is_delivered_at_once(new_pool: Any) -> None:
    pool = new_pool()
    connect(pool, "a")
    error = ZeroDivisionError("mine")
    pool.on_batch_failed("a", error)
    assert pool.items() == [error]


def test_feed_without_steps_ends_at_once(new_pool: Any) -> None:
    pool = new_pool(epochs=1, position=50)
    assert pool.ended
    (end,) = pool.items()
    assert isinstance(end, EndOfFeed)
    assert not pool.wait_for_turn("a")


def test_end_is_delivered_once_after_the_last_batch(new_pool: Any) -> None:
    pool = new_pool(epochs=1)
    (stream,) = connect(pool, "a")
    for step in range(12):
        assert pool.wait_for_step("a", stream) == step
        pool.on_batch("a", step, batch(step))
        pool.on_consumed(32)
    *steps, end = pool.items()
    assert steps == list(range(12))
    assert isinstance(end, EndOfFeed)
    pool.fail(LOST)
    pool.on_end_of_data(3, 12)
    assert pool.items() == []
    assert pool.wait_for_step("a", stream) is None
    assert not pool.wait_for_turn("a")


def test_close_drops_all_batches(new_pool: Any) -> None:
    pool = new_pool("ab")
    first, second = connect(pool, "a", "b")
    assert [pool.wait_for_step("a", first), pool.wait_for_step("b", second)] == [0, 1]
    pool.on_batch("b", 1, batch(1))
    assert pool.counters.prefetched_bytes == 32
    pool.close()
    pool.on_batch("a", 0, batch(0))
    assert pool.counters.prefetched_bytes == 0
    assert pool._scheduler._reorder_buffer == {}
    assert pool.items() == []
    pool.on_connection_lost("a", LOST)
    pool.fail(LOST)
    assert pool.items() == []


def test_error_after_close_is_not_kept(new_pool: Any) -> None:
    """The frames of its traceback hold the buffer of a batch."""

    class Payload: ...

    def fail_with(payload: Payload) -> None:
        try:
            raise FeedClosedError("cancelled")
        except FeedClosedError as error:
            pool.on_batch_failed("a", error)

    pool = new_pool()
    (stream,) = connect(pool, "a")
    assert pool.wait_for_step("a", stream) == 0
    pool.close()
    payload = Payload()
    kept = weakref.ref(payload)
    fail_with(payload)
    del payload
    assert kept() is None


def test_blocking_server_and_its_reason(new_pool: Any, clock: Clock) -> None:
    pool = new_pool("ab")
    assert pool.blocking_server() == ("target", "no answer from the server")
    pool.on_connection_lost("b", LOST)
    assert pool.blocking_server() == ("target", "reconnecting after: b: cut")
    (stream,) = connect(pool, "a")
    pool.wait_for_step("a", stream)
    assert pool.blocking_server()[0] == "a"
    assert pool.blocking_server()[1].startswith("requested ")


class BlockedCall:
    """A call of the pool that blocks, on a thread of its own."""

    def __init__(self, call: Callable[[], Any], waits_in: str) -> None:
        self._result: Any = self
        self.thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self.thread.start()
        until(lambda: blocked_in(self.thread, "wait", waits_in))

    def _run(self, call: Callable[[], Any]) -> None:
        self._result = call()

    def result(self) -> Any:
        self.thread.join(HANG_SECONDS)
        return self._result


def test_received_batch_wakes_a_reader_at_its_quota(new_pool: Any) -> None:
    pool = new_pool("ab")
    (stream,) = connect(pool, "a")
    assert [pool.wait_for_step("a", stream) for _ in range(4)] == [0, 1, 2, 3]
    waiting = BlockedCall(lambda: pool.wait_for_step("a", stream), "wait_for_step")
    pool.on_batch("a", 0, batch(0))
    assert waiting.result() == 4


WAKERS: dict[str, tuple[Callable[[Any, Any], None], int | None]] = {
    "on_consumed": (lambda pool, stream: pool.on_consumed(32), 8),
    "end_stream": (lambda pool, stream: pool.end_stream(stream), None),
    "on_draining": (lambda pool, stream: pool.on_draining("a"), None),
    "fail": (lambda pool, stream: pool.fail(LOST), None),
    "close": (lambda pool, stream: pool.close(), None),
}


@pytest.mark.parametrize("waker", WAKERS)
def test_reader_that_waits_for_a_step_is_woken(new_pool: Any, waker: str) -> None:
    pool = new_pool()
    (stream,) = connect(pool, "a")
    for step in range(8):
        assert pool.wait_for_step("a", stream) == step
        pool.on_batch("a", step, batch(step))
    waiting = BlockedCall(lambda: pool.wait_for_step("a", stream), "wait_for_step")
    wake, expected = WAKERS[waker]
    wake(pool, stream)
    assert waiting.result() == expected


def test_lost_connection_wakes_the_other_reader(new_pool: Any) -> None:
    """It gets the reassigned step at once, not at its next check for a hedge."""
    pool = new_pool("ab")
    first, second = connect(pool, "a", "b")
    assert [pool.wait_for_step("a", first) for _ in range(4)] == [0, 1, 2, 3]
    assert [pool.wait_for_step("b", second) for _ in range(4)] == [4, 5, 6, 7]
    waiting = BlockedCall(lambda: pool.wait_for_step("b", second), "wait_for_step")
    for step in range(4, 8):
        pool.on_batch("b", step, batch(step))
    pool.on_connection_lost("a", LOST)
    assert waiting.result() == 0


@pytest.mark.parametrize("end", ["close", "fail"])
def test_backoff_ends_with_the_feed(new_pool: Any, end: str) -> None:
    pool = new_pool()
    waiting = BlockedCall(lambda: pool.backoff(2 * HANG_SECONDS), "wait_for")
    if end == "close":
        pool.close()
    else:
        pool.fail(LOST)
    assert waiting.result() is None


def test_servers_wait_for_their_turn_if_one_serves_at_a_time(new_pool: Any) -> None:
    pool = new_pool("ab", multi_server=False)
    connect(pool, "a")
    waiting = BlockedCall(lambda: pool.wait_for_turn("b"), "wait_for_turn")
    pool.on_connection_lost("a", LOST)
    assert waiting.result() is True
    waiting = BlockedCall(lambda: pool.wait_for_turn("a"), "wait_for_turn")
    pool.exclude("b", MISMATCH)
    assert waiting.result() is True
    waiting = BlockedCall(lambda: pool.wait_for_turn("b"), "wait_for_turn")
    pool.close()
    assert waiting.result() is False
