"""The schedule: the same for a seed, possible in its order, and never without servers for long."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stress.chaos.fault_schedule import (
    LONGEST_FREEZE_SECONDS,
    START_SECONDS,
    Event,
    Kind,
    schedule,
)
from tests.stress.chaos.trainer import Task

SERVERS = 3
PROXIED = 0


def answers_from(events: list[Event], server: int) -> list[tuple[float, float]]:
    """(when, from when on the server answers if nothing else happens), with the proxy's part."""
    process = proxy = 0.0
    found = [(0.0, 0.0)]
    for event in events:
        if event.server != server:
            continue
        if event.kind in (Kind.KILL, Kind.TERMINATE):
            process = math.inf
        elif event.kind is Kind.RESTART:
            process = event.at + START_SECONDS
        elif event.kind is Kind.FREEZE:
            process = event.at + event.seconds
        elif event.kind is Kind.STALL:
            proxy = event.at + event.seconds
        found.append((event.at, max(process, proxy)))
    return found


def good(timeline: list[tuple[float, float]], now: float) -> bool:
    return [since for at, since in timeline if at <= now][-1] <= now


def test_a_seed_is_a_schedule() -> None:
    assert schedule(7, 100, 4.0) == schedule(7, 100, 4.0)
    assert schedule(7, 100, 4.0) != schedule(8, 100, 4.0)


def test_a_hundred_events_are_of_every_kind() -> None:
    for seed in range(50):
        counts = Counter(event.kind for event in schedule(seed, 100, 4.0))
        assert min(counts[kind] for kind in Kind) >= 2, (seed, counts)


def test_their_pace() -> None:
    ends = [schedule(seed, 100, 4.0)[-1].at for seed in range(20)]
    assert 300 < sum(ends) / len(ends) < 500


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_can_happen_when_it_is_due(seed: int) -> None:
    events = schedule(seed, 100, 4.0)
    assert [event.at for event in events] == sorted(event.at for event in events)
    for number, event in enumerate(events):
        timeline = answers_from(events[:number], event.server)
        if event.kind is Kind.RESTART:
            assert math.isinf(timeline[-1][1])
        else:
            assert good(timeline, event.at)
        if event.kind in (Kind.STALL, Kind.RESET):
            assert event.server == PROXIED
        assert event.seconds <= LONGEST_FREEZE_SECONDS


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32))
def test_no_outage_is_as_long_as_a_trainer_waits(seed: int) -> None:
    events = schedule(seed, 100, 4.0)
    timelines = [answers_from(events, server) for server in range(SERVERS)]
    out = 0.0
    for tick in range(int(events[-1].at * 4)):
        out = 0.0 if any(good(timeline, tick / 4) for timeline in timelines) else out + 0.25
        assert out < 60 < Task.reconnect_timeout


def test_events_say_what_they_are() -> None:
    assert str(Event(1, Kind.FREEZE, 2, seconds=3)) == "freeze server 2 for 3.0 s"
    assert str(Event(1, Kind.RESET, 0, bytes=2_000_000)) == "reset server 0 after 2.0 MB"
    assert str(Event(1, Kind.KILL, 1)) == "kill server 1"


@pytest.mark.parametrize("count", [0, 1, 10])
def test_so_many(count: int) -> None:
    assert len(schedule(1, count, 4.0)) == count
