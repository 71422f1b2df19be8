"""Step scheduler: every step is delivered once and in order, despite losses and stragglers."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.clock import ManualClock
from tests.harness.examples import examples

from infeed.prefetch.step_scheduler import MIN_STRAGGLER_SECONDS, StepScheduler


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def scheduler_of(
    clock: ManualClock, steps: int | None = None, servers: str = "ab"
) -> StepScheduler[int]:
    scheduler: StepScheduler[int] = StepScheduler(steps, clock)
    for server in servers:
        scheduler.add_server(server)
    return scheduler


def pop_all(scheduler: StepScheduler[int]) -> list[int]:
    steps = []
    while (step := scheduler.pop_next()) is not None:
        steps.append(step)
    return steps


def test_first_of_several_servers_gets_an_initial_quota(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock, servers="a")
    scheduler.single_server = False
    assert [scheduler.assign("a", 20) for _ in range(5)] == [0, 1, 2, 3, None]
    scheduler.add_server("b")
    assert [scheduler.assign("b", 20) for _ in range(5)] == [4, 5, 6, 7, None]


def test_next_steps_are_not_all_at_the_first_server_that_answers(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock)
    assert [scheduler.assign("a", 64) for _ in range(5)] == [0, 1, 2, 3, None]
    clock.now += 1
    scheduler.on_received("a", 0, 0)
    assert [scheduler.assign("a", 64) for _ in range(3)] == [4, 5, None]
    assert [scheduler.assign("b", 64) for _ in range(5)] == [6, 7, 8, 9, None]


def test_fast_server_gets_a_larger_quota(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock)
    for _ in range(30):
        clock.now += 1
        for server, seconds in (("a", 0.1), ("b", 0.9)):
            step = scheduler.assign(server, scheduler.next_step + 20)
            assert step is not None
            clock.now += seconds
            scheduler.on_received(server, step, step)
        pop_all(scheduler)
    limit = scheduler.next_step + 20
    quotas = {"a": 0, "b": 0}
    for server in quotas:
        while scheduler.assign(server, limit) is not None:
            quotas[server] += 1
    assert quotas == {"a": 18, "b": 2}


def test_batch_rates_are_of_the_time_with_requests(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock)
    for _ in range(20):
        clock.now += 5.0  # nothing was requested
        step = scheduler.assign("a", scheduler.next_step + 2)
        assert step is not None
        clock.now += 0.25
        scheduler.on_received("a", step, step)
        pop_all(scheduler)
    assert scheduler.batch_rates() == {"a": pytest.approx(4.0), "b": 0.0}


def test_rate_is_of_many_batches_that_come_in_bursts(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock, servers="a")
    for _ in range(10):
        limit = scheduler.next_step + 5
        steps = list(iter(lambda limit=limit: scheduler.assign("a", limit), None))
        clock.now += 0.5
        for step in steps:
            scheduler.on_received("a", step, step)
        pop_all(scheduler)
    assert scheduler.batch_rates() == {"a": pytest.approx(10, rel=0.01)}


def test_rate_of_a_server_falls_while_it_is_silent(clock: ManualClock) -> None:
    scheduler = with_speeds(clock, 0.25)
    clock.now += 60  # nothing was requested
    assert scheduler.batch_rates() == {"a": pytest.approx(4.0)}
    assert assigned(scheduler, "a", 2) == [0, 1]
    clock.now += 2.5
    assert scheduler.batch_rates() == {"a": pytest.approx(21 / 7.5)}
    clock.now += 17.5
    assert scheduler.batch_rates() == {"a": pytest.approx(1 / 20)}


def with_speeds(clock: ManualClock, *seconds: float) -> StepScheduler[int]:
    """Returns a scheduler of servers "abc" that have sent twenty batches, in these seconds each;
    of 0, none."""
    scheduler = scheduler_of(clock, servers="abc"[: len(seconds)])
    for _ in range(20):
        for server, interval in zip("abc", seconds, strict=False):
            if interval:
                step = scheduler.assign(server, scheduler.next_step + 9)
                assert step is not None
                clock.now += interval
                scheduler.on_received(server, step, step)
                pop_all(scheduler)
    return scheduler


def assigned(scheduler: StepScheduler[int], server: str, window: int) -> list[int]:
    """Returns the steps that the server may have in flight more, relative to the next step."""
    first = scheduler.next_step
    steps = iter(lambda: scheduler.assign(server, first + window), None)
    return [step - first for step in steps]


def test_only_server_gets_the_whole_window_at_once(clock: ManualClock) -> None:
    assert assigned(scheduler_of(clock, servers="a"), "a", 20) == list(range(20))


def test_share_of_a_server_is_rounded(clock: ManualClock) -> None:
    scheduler = with_speeds(clock, 0.1, 0.1, 0.1)
    assert [len(assigned(scheduler, server, 16)) for server in "abc"] == [5, 5, 5]


def test_step_that_another_server_owes_is_not_reassigned(clock: ManualClock) -> None:
    scheduler = with_speeds(clock, 0.1, 0.1, 0.1)
    assert assigned(scheduler, "a", 2) == [0, 1]
    clock.now += 0.5
    assert scheduler.probe("b", scheduler.next_step + 9) == scheduler.next_step
    assert scheduler.blocking_server() == ("a", pytest.approx(0.5))
    scheduler.remove_server("a")
    assert assigned(scheduler, "c", 2) == [1]
    scheduler.on_received("c", scheduler.next_step + 1, -1)
    assert scheduler.probe("c", scheduler.next_step + 9) == scheduler.next_step
    scheduler.on_received("b", scheduler.next_step, -1)
    scheduler.remove_server("c")
    assert not scheduler.has_reassigned


def test_probe_of_a_new_step_leaves_it_to_no_other(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock, steps=2)
    assert [scheduler.probe(server, 0) for server in "az"] == [None, None]
    assert scheduler.probe("a", 9) == 0
    assert assigned(scheduler, "b", 9) == [1]
    for step, server in enumerate("ab"):
        scheduler.on_received(server, step, step)
    assert pop_all(scheduler) == [0, 1]
    assert scheduler.probe("a", 9) is None


def test_late_step_is_requested_from_an_idle_server(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock, steps=2)
    assert [scheduler.assign("a", 2), scheduler.assign("b", 2)] == [0, 1]
    scheduler.on_received("b", 1, 1)
    clock.now += 0.9 * MIN_STRAGGLER_SECONDS
    assert scheduler.assign("b", 2) is None
    clock.now += MIN_STRAGGLER_SECONDS
    assert scheduler.blocking_server() == ("a", pytest.approx(1.9))
    assert scheduler.assign("b", 2) == 0
    assert scheduler.assign("b", 2) is None
    assert scheduler.hedges == 1
    assert scheduler.on_received("b", 0, 0)
    assert pop_all(scheduler) == [0, 1]
    assert not scheduler.on_received("a", 0, 0)
    assert pop_all(scheduler) == []


def test_scheduler_with_a_failed_step_is_never_complete(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock, steps=3)
    assert [scheduler.assign(server, 3) for server in "aab"] == [0, 1, 2]
    scheduler.fail(1, -1)
    assert not scheduler.on_received("b", 2, 2), "no step behind it is needed"
    assert scheduler.on_received("a", 0, 0)
    assert not scheduler.on_received("a", 1, 1), "it has failed"
    assert pop_all(scheduler) == [0, -1]
    assert not scheduler.complete


def with_straggler(clock: ManualClock) -> tuple[StepScheduler[int], list[int]]:
    """Returns a scheduler of three servers, and the steps in flight at "a", which has just become a
    straggler."""
    scheduler = scheduler_of(clock, servers="abc")
    for _ in range(9):
        for server in "abc":
            step = scheduler.assign(server, scheduler.next_step + 18)
            assert step is not None
            clock.now += 0.01
            scheduler.on_received(server, step, step)
        pop_all(scheduler)
    in_flight: dict[str, list[int]] = {server: [] for server in "abc"}
    for server in "abc" * 6:
        step = scheduler.assign(server, scheduler.next_step + 18)
        assert step is not None
        in_flight[server].append(step)
    for server in "bc":
        for step in in_flight[server]:
            clock.now += 0.01
            scheduler.on_received(server, step, step)
    assert pop_all(scheduler) == []
    return scheduler, in_flight["a"]


def receive_all(scheduler: StepScheduler[int], server: str) -> list[int]:
    """Receives all steps that the server may get within the present window; returns them."""
    limit = scheduler.next_step + 18
    steps = []
    while (step := scheduler.assign(server, limit)) is not None:
        steps.append(step)
    for step in steps:
        scheduler.on_received(server, step, step)
    return steps


def test_no_step_behind_the_end_is_assigned(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock)
    assert not scheduler.complete
    assert [scheduler.assign("a", 9) for _ in range(4)] == [0, 1, 2, 3]
    for end in (5, 2, 7):
        scheduler.end_at(end)
    scheduler.remove_server("a")
    assert [scheduler.assign("b", 9) for _ in range(3)] == [0, 1, None]
    assert not scheduler.complete
    for step in range(2):
        scheduler.on_received("b", step, step)
    assert pop_all(scheduler) == [0, 1]
    assert scheduler.complete


def test_all_steps_of_a_straggler_are_reassigned_at_once(clock: ManualClock) -> None:
    scheduler, timed_out = with_straggler(clock)
    assert len(timed_out) == 6
    clock.now += 0.5 * MIN_STRAGGLER_SECONDS
    assert scheduler.assign("b", scheduler.next_step + 18) is None
    clock.now += MIN_STRAGGLER_SECONDS
    assert receive_all(scheduler, "b") == timed_out
    assert scheduler.hedges == 6
    assert len(pop_all(scheduler)) == 18


def served_steps(clock: ManualClock, *, is_urgent: bool) -> tuple[int, int]:
    """Lets four servers, the first ten times slower than the others, send within a window of 16 for
    20 seconds. Returns the steps that are delivered, and the hedges."""
    scheduler = scheduler_of(clock, servers="abcd")
    queues: dict[str, list[int]] = {server: [] for server in "abcd"}
    ready_at = dict.fromkeys("abcd", 0.0)
    while clock.now < 20:
        clock.now += 0.01
        for server, queue in queues.items():
            if queue and clock.now >= ready_at[server]:
                scheduler.on_received(server, queue[0], queue.pop(0))
                ready_at[server] = clock.now + (1.0 if server == "a" else 0.1)
        pop_all(scheduler)
        for server, queue in queues.items():
            limit = scheduler.next_step + 16
            while (step := scheduler.assign(server, limit, is_urgent=is_urgent)) is not None:
                if not queue:
                    ready_at[server] = clock.now + (1.0 if server == "a" else 0.1)
                queue.append(step)
    return scheduler.next_step, scheduler.hedges


def test_slow_server_does_not_hold_up_a_trainer_that_waits(clock: ManualClock) -> None:
    """Three servers that send ten steps a second would deliver 600 in 20 seconds."""
    steps, hedges = served_steps(clock, is_urgent=True)
    assert steps > 450
    assert hedges <= 25, "at most the steps that the slow server sends"


def test_slow_server_is_waited_for_while_batches_are_ready(clock: ManualClock) -> None:
    _, hedges = served_steps(clock, is_urgent=False)
    assert hedges <= 4


def hedges_of_idle_server(clock: ManualClock, *, intervals: list[float], silence: float) -> int:
    """Lets "a" send batches at these intervals, and "b" every 0.1 seconds. Returns how many of the
    two steps of "a" are requested from "b", idle for this time since "a" has sent."""
    scheduler = scheduler_of(clock, servers="ab")
    for server, seconds in (*(("b", 0.1) for _ in range(20)), *(("a", s) for s in intervals)):
        step = scheduler.assign(server, scheduler.next_step + 16)
        assert step is not None
        clock.now += seconds
        scheduler.on_received(server, step, step)
        pop_all(scheduler)
    limit = scheduler.next_step + 2
    assert [scheduler.assign("a", limit) for _ in range(2)] == [limit - 2, limit - 1]
    clock.now += silence
    while scheduler.assign("b", limit, is_urgent=True) is not None:
        pass
    return scheduler.hedges


def test_server_that_sent_one_late_batch_is_waited_for(clock: ManualClock) -> None:
    assert hedges_of_idle_server(clock, intervals=[0.1] * 20 + [5.0], silence=0.0) == 0


@pytest.mark.parametrize("late", [[1.0] * 9, [5.0] * 2, [2.0, 0.001] * 15])
def test_server_that_has_become_slow_is_not_waited_for(
    clock: ManualClock, late: list[float]
) -> None:
    assert hedges_of_idle_server(clock, intervals=[0.1] * 20 + late, silence=0.0) == 2


def test_slow_server_that_is_about_to_send_is_waited_for(clock: ManualClock) -> None:
    assert hedges_of_idle_server(clock, intervals=[1.0] * 9, silence=0.5) == 2
    assert hedges_of_idle_server(clock, intervals=[1.0] * 9, silence=0.7) == 0


def test_far_server_is_not_asked_for_what_another_is_about_to_send(clock: ManualClock) -> None:
    """A round trip takes 0.1 seconds, and then all comes that a server was asked for at once."""
    scheduler = scheduler_of(clock, servers="ab")
    for _ in range(20):
        limit = scheduler.next_step + 8
        requested: dict[str, list[int]] = {"a": [], "b": []}
        for server in "abbbabbb":
            step = scheduler.assign(server, limit, is_urgent=True)
            requested[server] += [] if step is None else [step]
        limit = max(map(max, requested.values())) + 1
        clock.now += 0.1
        for server in "ba":
            for step in requested[server]:
                clock.now += 0.001
                scheduler.on_received(server, step, step)
                pop_all(scheduler)
                if server == "a" and scheduler.servers["a"].in_flight:
                    assert scheduler.assign("b", limit, is_urgent=True) is None
        assert scheduler.hedges == 0


def test_busy_server_is_not_asked_for_steps_of_a_slow_one(clock: ManualClock) -> None:
    scheduler = with_speeds(clock, 1.0, 0.1)
    assert assigned(scheduler, "a", 2) == [0, 1]
    assert scheduler.assign("b", scheduler.next_step + 3) == scheduler.next_step + 2
    assert scheduler.assign("b", scheduler.next_step + 3, is_urgent=True) is None
    scheduler.on_received("b", scheduler.next_step + 2, -1)
    assert scheduler.assign("b", scheduler.next_step + 3, is_urgent=True) == scheduler.next_step


def test_wait_in_a_queue_counts_for_no_idle_server(clock: ManualClock) -> None:
    scheduler = with_speeds(clock, 1.0, 0.1)
    for step in assigned(scheduler, "b", 9):
        clock.now += 0.1
        scheduler.on_received("b", scheduler.next_step, step)
        pop_all(scheduler)
    assert assigned(scheduler, "a", 2) == [0, 1]
    clock.now += 0.4
    assert scheduler.assign("b", scheduler.next_step + 2, is_urgent=True) == scheduler.next_step


def test_no_server_is_a_straggler_if_all_are_silent(clock: ManualClock) -> None:
    scheduler = scheduler_of(clock, servers="abc")
    for server in "abc" * 4:
        assert scheduler.assign(server, 12) is not None
    clock.now += 100
    assert [scheduler.assign(server, 12) for server in "abc"] == [None, None, None]
    assert scheduler.hedges == 0
    assert not scheduler.has_reassigned


# Seconds that pass, a server, an event, and the size of the window.
EVENTS = list(
    product(
        (0, 0.01, 3.0), "abc", ("assign", "assign", "receive", "receive", "remove"), range(1, 9)
    )
)


@examples(300)
@given(
    st.integers(1, 30),
    # Without a minimum size, lists would have about five entries.
    st.integers(0, 120).flatmap(
        lambda count: st.lists(st.sampled_from(EVENTS), min_size=count, max_size=count)
    ),
)
def test_every_step_is_delivered_once_and_in_order(
    total: int, events: list[tuple[float, str, str, int]]
) -> None:
    """Servers are added and removed, and answer in any order, slowly or at once."""
    clock = ManualClock()
    scheduler = scheduler_of(clock, steps=total, servers="")
    in_flight: dict[str, list[int]] = {}
    out: list[int] = []
    for seconds, server, event, window in events:
        clock.now += seconds
        if server not in in_flight:
            scheduler.add_server(server)
            in_flight[server] = []
        if event == "remove":
            scheduler.remove_server(server)
            del in_flight[server]
        elif event == "assign":
            step = scheduler.assign(server, len(out) + window)
            if step is not None:
                assert len(out) <= step < total
                in_flight[server].append(step)
        elif in_flight[server]:
            step = in_flight[server].pop(0)
            scheduler.on_received(server, step, step)
        out += pop_all(scheduler)
        assert all(
            len(scheduler.servers[name].in_flight) == len(steps)
            for name, steps in in_flight.items()
        )
    # After any events, one good server completes the feed.
    for name in list(in_flight):
        if name != "z":
            scheduler.remove_server(name)
    scheduler.add_server("z")
    while (step := scheduler.assign("z", total)) is not None:
        scheduler.on_received("z", step, step)
        out += pop_all(scheduler)
    assert out == list(range(total))
    assert scheduler.complete
