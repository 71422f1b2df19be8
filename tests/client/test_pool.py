"""The servers of a feed as one, driven by hand: what each is asked, and what ends the feed."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, Clock, blocked_in, until

from infeed import pool as module
from infeed.assembly import Received
from infeed.batch import Batch
from infeed.cursor import Cursor, Shard
from infeed.errors import (
    FeedClosedError,
    FingerprintError,
    SampleError,
    ServerUnavailableError,
)
from infeed.handoff import Handoff
from infeed.job import Job, new_job
from infeed.pool import End, Item, Pool
from infeed.spec import Guarantee
from infeed.testing import FakeTransport

LOST = ServerUnavailableError("cut")
OTHER = FingerprintError("another version")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Driven(Pool):
    """A pool, and what has left it."""

    def __init__(self, job: Job) -> None:
        self.ready: Handoff[Item] = Handoff()
        super().__init__("target", job, self.ready)

    def out(self) -> list[Any]:
        """What has left since the last look: the steps of batches, errors, and an end."""
        found: list[Any] = []
        while self.ready._items:
            item = self.ready.get(0)
            found.append(item.step if isinstance(item, Received) else item)
        return found


def batch(step: int, size: int = 32) -> Received:
    ids = np.arange(4)
    return Received(step, Batch({}, start=4 * step, epoch=0, sample_ids=ids, mask=ids >= 0), size)


@pytest.fixture
def pool(clock: Clock) -> Callable[..., Driven]:
    """Makes pools of servers: `pool("ab")`; `together` is False where only one serves at a time."""

    def make(
        servers: str = "a",
        *,
        epochs: int | None = None,
        position: int = 0,
        together: bool = True,
    ) -> Driven:
        spec = FakeTransport({"x": np.arange(50)}, batch_size=4).spec
        if not together:
            promise = Guarantee("deterministic", "exactly_once", "replay")
            object.__setattr__(spec, "guarantee", promise)
        job = new_job(
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
        found = Driven(job)
        found.expect(list(servers))
        return found

    return make


def connect(pool: Pool, *servers: str) -> list[threading.Event]:
    """Opens a stream to each; the events that end them."""
    streams = []
    for server in servers:
        streams.append(threading.Event())
        assert pool.enter(server)
        pool.connected(server, streams[-1])
        pool.opened(server)
    return streams


def test_a_feed_ends_when_its_only_server_was_away_for_too_long(pool: Any, clock: Clock) -> None:
    feed = pool()
    connect(feed, "a")
    clock.now += 1000
    feed.check()
    feed.lost("a", LOST)
    clock.now += 59.9
    feed.check()
    assert (feed.over, feed.out()) == (False, [])
    clock.now += 0.1
    feed.check()
    (error,) = feed.out()
    assert isinstance(error, ServerUnavailableError)
    assert "target was lost at position 0" in error.message
    assert "within 60 s; last reason: cut" in error.message
    assert feed.over


def test_the_time_runs_from_the_first_loss_and_attempts_do_not_lengthen_it(
    pool: Any, clock: Clock
) -> None:
    feed = pool()
    connect(feed, "a")
    feed.lost("a", LOST)
    clock.now += 70
    connect(feed, "a")
    feed.check()
    assert not feed.over  # a server is there
    feed.lost("a", LOST)
    assert feed.over


def test_a_batch_is_progress_and_the_time_runs_anew(pool: Any, clock: Clock) -> None:
    feed = pool()
    (stream,) = connect(feed, "a")
    feed.lost("a", LOST)
    clock.now += 59
    (stream,) = connect(feed, "a")
    step = feed.ask("a", stream)
    feed.arrived("a", step, batch(step))
    feed.lost("a", LOST)
    clock.now += 59
    feed.check()
    assert not feed.over
    clock.now += 1
    feed.check()
    assert feed.over


def test_one_that_is_away_for_ever_ends_nothing_while_another_serves(
    pool: Any, clock: Clock
) -> None:
    feed = pool("ab")
    connect(feed, "b")
    feed.lost("a", LOST)
    clock.now += 1000
    feed.check()
    feed.lost("a", LOST)
    assert not feed.over


def test_where_all_refuse_the_feed_ends_at_once(pool: Any, caplog: Any) -> None:
    feed = pool("ab")
    with caplog.at_level(logging.WARNING, "infeed.pool"):
        feed.leave_out("a", OTHER)
        feed.leave_out("a", OTHER)
    assert caplog.messages == ["a is left out: another version"]  # once
    assert not feed.over
    feed.leave_out("b", OTHER)
    assert feed.out() == [OTHER]


def test_a_refusal_is_told_where_the_others_stay_away(pool: Any, clock: Clock) -> None:
    feed = pool("ab")
    feed.leave_out("a", OTHER)
    feed.lost("b", LOST)
    assert not feed.over
    clock.now += 60
    feed.check()
    assert feed.out() == [OTHER]


def test_the_only_server_is_not_said_to_be_left_out(pool: Any, caplog: Any) -> None:
    feed = pool("a")
    feed.leave_out("a", OTHER)
    assert feed.out() == [OTHER]
    assert not caplog.records


def test_what_a_lost_one_owed_is_asked_of_another_and_delivered_in_order(pool: Any) -> None:
    feed = pool("ab")
    first, second = connect(feed, "a", "b")
    steps = {
        name: [feed.ask(name, over) for _ in range(2)]
        for name, over in (("a", first), ("b", second))
    }
    for step in steps["b"]:
        feed.arrived("b", step, batch(step))
    assert feed.out() == []
    feed.lost("a", LOST)
    assert [feed.ask("b", second) for _ in range(2)] == steps["a"] == [0, 1]
    for step in steps["a"]:
        feed.arrived("b", step, batch(step))
    assert feed.out() == [0, 1, 2, 3]


def test_losses_and_reconnects_are_counted_for_streams_that_were_open(pool: Any) -> None:
    feed = pool("ab")
    connect(feed, "a")
    feed.lost("b", LOST)  # it never was
    assert (feed.tally.losses, feed.tally.reconnects) == (0, 0)
    feed.lost("a", LOST)
    assert (feed.tally.losses, feed.tally.reconnects) == (1, 0)
    feed.lost("a", LOST)
    assert feed.tally.losses == 1
    connect(feed, "a")
    assert (feed.tally.losses, feed.tally.reconnects) == (1, 1)
    connect(feed, "b")
    assert feed.tally.reconnects == 1
    assert feed.tally.servers == ["a", "b"]


def test_one_that_was_lost_is_asked_only_when_it_has_accepted_a_stream(pool: Any) -> None:
    feed = pool("ab")
    for trouble in (feed.lost, feed.leave_out):
        trouble("a", LOST if trouble == feed.lost else OTHER)
        over = threading.Event()
        feed.enter("a")
        feed.connected("a", over)
        assert feed._ledger.servers == []
        feed.opened("a")
        assert feed._ledger.servers == ["a"]


def test_a_stream_that_is_over_makes_nobody_join(pool: Any) -> None:
    feed = pool()
    over = threading.Event()
    feed.enter("a")
    feed.end(over)
    assert over.is_set()
    feed.connected("a", over)
    assert feed._ledger.servers == []
    assert feed.ask("a", over) is None


def test_a_draining_one_is_asked_for_nothing_until_it_is_connected_again(pool: Any) -> None:
    feed = pool("ab")
    (over,) = connect(feed, "a")
    assert feed.ask("a", over) == 0
    feed.drain("a")
    assert feed.ask("a", over) is None
    feed.arrived("a", 0, batch(0))
    assert feed.out() == [0]
    (over,) = connect(feed, "a")
    assert feed.ask("a", over) == 1


def test_an_error_goes_behind_the_batches_before_it_and_nothing_after_it(pool: Any) -> None:
    feed = pool("ab")
    first, second = connect(feed, "a", "b")
    assert [feed.ask("a", first), feed.ask("b", second), feed.ask("b", second)] == [0, 1, 2]
    error = SampleError("bad")
    feed.failed("b", error)
    assert feed.out() == []
    assert feed._ledger.servers == ["a"]
    assert feed._ledger.ask("a", 8) is None  # what is behind the error is not wanted
    feed.arrived("a", 0, batch(0))
    assert feed.out() == [0, error]
    assert feed.over


def test_an_error_in_the_place_of_the_next_batch_comes_at_once(pool: Any) -> None:
    feed = pool("ab")
    first, second = connect(feed, "a", "b")
    assert [feed.ask("a", first), feed.ask("b", second)] == [0, 1]
    feed.arrived("b", 1, batch(1))
    error = SampleError("bad")
    feed.failed("a", error)
    assert feed.out() == [error]  # not the batch behind it, which is here already


def test_an_end_that_a_server_tells_is_one_for_all(pool: Any) -> None:
    feed = pool("ab")
    first, second = connect(feed, "a", "b")
    assert [feed.ask("a", first), feed.ask("b", second), feed.ask("a", first)] == [0, 1, 2]
    feed.ends_at(2, 8)
    assert feed._ledger.ask("b", 8) is None
    assert feed.out() == []
    feed.arrived("b", 1, batch(1))
    feed.arrived("a", 0, batch(0))
    *steps, end = feed.out()
    assert (steps, end) == ([0, 1], End(8))


def test_an_end_behind_what_was_delivered_comes_at_once(pool: Any) -> None:
    feed = pool()
    (over,) = connect(feed, "a")
    assert [feed.ask("a", over), feed.ask("a", over)] == [0, 1]
    feed.arrived("a", 0, batch(0))
    assert feed.out() == [0]
    feed.ends_at(1, 4)
    (end,) = feed.out()
    assert isinstance(end, End)


def test_a_batch_that_nobody_wants_any_more_does_not_wait(pool: Any) -> None:
    feed = pool()
    (over,) = connect(feed, "a")
    assert [feed.ask("a", over), feed.ask("a", over)] == [0, 1]
    feed.ends_at(1, 4)
    feed.arrived("a", 1, batch(1))
    assert feed.tally.prefetched_bytes == 0


def test_an_error_of_one_that_owes_nothing_comes_at_once(pool: Any) -> None:
    feed = pool()
    connect(feed, "a")
    error = ZeroDivisionError("mine")
    feed.failed("a", error)
    assert feed.out() == [error]


def test_where_no_step_is_left_the_feed_is_over_before_it_asks(pool: Any) -> None:
    feed = pool(epochs=1, position=50)
    assert feed.over
    (end,) = feed.out()
    assert isinstance(end, End)
    assert not feed.enter("a")


def test_the_end_comes_once_behind_the_last_batch(pool: Any) -> None:
    feed = pool(epochs=1)
    (over,) = connect(feed, "a")
    for step in range(12):
        assert feed.ask("a", over) == step
        feed.arrived("a", step, batch(step))
        feed.took(32)
    *steps, end = feed.out()
    assert steps == list(range(12))
    assert isinstance(end, End)
    feed.fail(LOST)
    feed.ends_at(3, 12)
    assert feed.out() == []
    assert feed.ask("a", over) is None
    assert not feed.enter("a")


def test_nothing_is_kept_after_close(pool: Any) -> None:
    feed = pool("ab")
    first, second = connect(feed, "a", "b")
    assert [feed.ask("a", first), feed.ask("b", second)] == [0, 1]
    feed.arrived("b", 1, batch(1))
    assert feed.tally.prefetched_bytes == 32
    feed.close()
    feed.arrived("a", 0, batch(0))
    assert feed.tally.prefetched_bytes == 0
    assert feed._ledger._here == {}
    assert feed.out() == []
    feed.lost("a", LOST)
    feed.fail(LOST)
    assert feed.out() == []


def test_an_error_after_close_is_not_kept_nor_what_its_frames_hold(pool: Any) -> None:
    class Payload: ...

    def fail_with(payload: Payload) -> None:
        try:
            raise FeedClosedError("cancelled")
        except FeedClosedError as error:
            feed.failed("a", error)

    feed = pool()
    (over,) = connect(feed, "a")
    assert feed.ask("a", over) == 0
    feed.close()
    payload = Payload()
    held = weakref.ref(payload)
    fail_with(payload)
    del payload
    assert held() is None


def test_why_a_batch_does_not_come_is_told(pool: Any, clock: Clock) -> None:
    feed = pool("ab")
    assert feed.awaited() == ("target", "the server is silent")
    feed.lost("b", LOST)
    assert feed.awaited() == ("target", "reconnecting after: b: cut")
    (over,) = connect(feed, "a")
    feed.ask("a", over)
    assert feed.awaited()[0] == "a"
    assert feed.awaited()[1].startswith("asked for it ")


class Asking:
    """A call of the pool on a thread of its own."""

    def __init__(self, call: Callable[[], Any], waits_in: str) -> None:
        self.answer: Any = self
        self.thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self.thread.start()
        until(lambda: blocked_in(self.thread, "wait", waits_in))

    def _run(self, call: Callable[[], Any]) -> None:
        self.answer = call()

    def result(self) -> Any:
        self.thread.join(HANG_SECONDS)
        return self.answer


def test_an_answer_wakes_who_owes_as_much_as_it_may(pool: Any) -> None:
    feed = pool("ab")
    (over,) = connect(feed, "a")
    assert [feed.ask("a", over) for _ in range(4)] == [0, 1, 2, 3]
    asking = Asking(lambda: feed.ask("a", over), "ask")
    feed.arrived("a", 0, batch(0))
    assert asking.result() == 4


WAKERS: dict[str, tuple[Callable[[Any, Any], None], int | None]] = {
    "took": (lambda feed, over: feed.took(32), 8),
    "end": (lambda feed, over: feed.end(over), None),
    "drain": (lambda feed, over: feed.drain("a"), None),
    "fail": (lambda feed, over: feed.fail(LOST), None),
    "close": (lambda feed, over: feed.close(), None),
}


@pytest.mark.parametrize("waker", WAKERS)
def test_who_waits_to_ask_is_woken(pool: Any, waker: str) -> None:
    feed = pool()
    (over,) = connect(feed, "a")
    for step in range(8):
        assert feed.ask("a", over) == step
        feed.arrived("a", step, batch(step))
    asking = Asking(lambda: feed.ask("a", over), "ask")
    wake, answer = WAKERS[waker]
    wake(feed, over)
    assert asking.result() == answer


def test_one_that_comes_wakes_who_looks_for_no_straggler(pool: Any) -> None:
    """What a lost server owed is asked of the other at once, not at its next look."""
    feed = pool("ab")
    first, second = connect(feed, "a", "b")
    assert [feed.ask("a", first) for _ in range(4)] == [0, 1, 2, 3]
    assert [feed.ask("b", second) for _ in range(4)] == [4, 5, 6, 7]
    asking = Asking(lambda: feed.ask("b", second), "ask")
    for step in range(4, 8):
        feed.arrived("b", step, batch(step))
    feed.lost("a", LOST)
    assert asking.result() == 0


@pytest.mark.parametrize("end", ["close", "fail"])
def test_a_rest_ends_with_the_feed(pool: Any, end: str) -> None:
    feed = pool()
    resting = Asking(lambda: feed.rest(2 * HANG_SECONDS), "wait_for")
    if end == "close":
        feed.close()
    else:
        feed.fail(LOST)
    assert resting.result() is None


def test_where_one_serves_at_a_time_the_others_wait_for_their_turn(pool: Any) -> None:
    feed = pool("ab", together=False)
    connect(feed, "a")
    waiting = Asking(lambda: feed.enter("b"), "enter")
    feed.lost("a", LOST)
    assert waiting.result() is True
    back = Asking(lambda: feed.enter("a"), "enter")
    feed.leave_out("b", OTHER)
    assert back.result() is True
    third = Asking(lambda: feed.enter("b"), "enter")
    feed.close()
    assert third.result() is False
