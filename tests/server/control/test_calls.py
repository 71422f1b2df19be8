"""Tests of `control/calls.py`."""

from __future__ import annotations

import asyncio
import threading

import pytest

from infeed_server.control.calls import MAX_SECONDS, Calls


class Clock:
    """The processor time of any thread."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> bool:
        """Spends the time; returns whether it runs on the main thread, as the event loop does."""
        self.now += seconds
        return threading.current_thread() is threading.main_thread()


def test_a_call_runs_on_the_event_loop_until_it_takes_long():
    clock = Clock()
    calls = Calls(clock=clock)

    def on_the_loop(name: str, seconds: float) -> bool:
        return asyncio.run(calls.run(name, clock.spend, seconds))

    assert on_the_loop("metrics", MAX_SECONDS / 2)
    assert on_the_loop("metrics", 2 * MAX_SECONDS)  # this is not known before
    assert not on_the_loop("metrics", 2 * MAX_SECONDS)
    assert on_the_loop("status", MAX_SECONDS / 2)  # of another name
    assert not on_the_loop("metrics", MAX_SECONDS / 2)
    assert on_the_loop("metrics", MAX_SECONDS / 2)


def test_a_blocking_call_always_runs_on_a_thread():
    clock = Clock()
    calls = Calls(blocking=True, clock=clock)
    for _ in range(3):
        assert not asyncio.run(calls.run("metrics", clock.spend, 0.0))


def test_a_call_that_fails_takes_time_too():
    clock = Clock()
    calls = Calls(clock=clock)

    def fail() -> None:
        clock.spend(2 * MAX_SECONDS)
        raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(calls.run("status", fail))
    assert not asyncio.run(calls.run("status", clock.spend, 0.0))


def test_the_loop_answers_while_a_long_call_runs():
    clock = Clock()
    calls = Calls(blocking=True, clock=clock)
    answered = threading.Event()

    async def both() -> bool:
        slow = asyncio.create_task(calls.run("metrics", answered.wait, 60.0))
        await asyncio.sleep(0)
        answered.set()
        return await slow

    assert asyncio.run(both())
