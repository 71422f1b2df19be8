"""Timers: order, cancellation, and the memory of cancelled ones."""

from __future__ import annotations

import pytest
from tests.harness.clock import ManualClock

from infeed_server.http2.timers import Timers


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timers(clock: ManualClock) -> Timers:
    return Timers(clock)


def test_due_timers_run_once_and_in_order(timers: Timers, clock: ManualClock) -> None:
    ran: list[int] = []
    for seconds in (3, 1, 2):
        timers.after(seconds, lambda seconds=seconds: ran.append(seconds))
    assert timers.run_due() == 1
    clock.now = 2.5
    assert timers.run_due() == 0.5
    assert ran == [1, 2]
    clock.now = 3
    assert timers.run_due() is None
    assert ran == [1, 2, 3]


def test_timer_of_a_timer_runs(timers: Timers, clock: ManualClock) -> None:
    ran: list[str] = []
    timers.after(1, lambda: timers.after(1, lambda: ran.append("second")) and None)
    clock.now = 1
    assert timers.run_due() == 1
    clock.now = 2
    assert timers.run_due() is None
    assert ran == ["second"]


def test_cancelled_timers_neither_run_nor_wake(timers: Timers, clock: ManualClock) -> None:
    timers.after(1, pytest.fail).cancel()
    timers.after(5, lambda: None)
    assert timers.run_due() == 5
    clock.now = 9
    assert timers.run_due() is None


def test_cancelled_timers_are_freed_before_they_are_due(timers: Timers) -> None:
    timers.after(1, lambda: None)
    for _ in range(10_000):
        timers.after(3600, lambda: None).cancel()
    assert len(timers._heap) < 200
    assert timers.run_due() == 1
