"""Fault schedule: repeatable, applicable in its order, and without long outages."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stress.chaos.fault_schedule import (
    MAX_FREEZE_SECONDS,
    SERVER_START_SECONDS,
    Event,
    FaultKind,
    draw_schedule,
)
from tests.stress.chaos.trainer import Task

SERVERS = 3
PROXIED = 0


def timeline_of(events: list[Event], server: int) -> list[tuple[float, float]]:
    """Returns (time of an event, time from which the server then answers), with the proxy."""
    process = proxy = 0.0
    timeline = [(0.0, 0.0)]
    for event in events:
        if event.server != server:
            continue
        if event.kind in (FaultKind.KILL, FaultKind.TERMINATE):
            process = math.inf
        elif event.kind is FaultKind.RESTART:
            process = event.offset + SERVER_START_SECONDS
        elif event.kind is FaultKind.FREEZE:
            process = event.offset + event.seconds
        elif event.kind is FaultKind.STALL:
            proxy = event.offset + event.seconds
        timeline.append((event.offset, max(process, proxy)))
    return timeline


def can_answer(timeline: list[tuple[float, float]], now: float) -> bool:
    return [since for offset, since in timeline if offset <= now][-1] <= now


def test_equal_seeds_draw_equal_schedules() -> None:
    assert draw_schedule(7, 100, 4.0) == draw_schedule(7, 100, 4.0)
    assert draw_schedule(7, 100, 4.0) != draw_schedule(8, 100, 4.0)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_event_is_applicable_at_its_time(seed: int) -> None:
    events = draw_schedule(seed, 100, 4.0)
    assert [event.offset for event in events] == sorted(event.offset for event in events)
    for number, event in enumerate(events):
        timeline = timeline_of(events[:number], event.server)
        if event.kind is FaultKind.RESTART:
            assert math.isinf(timeline[-1][1])
        else:
            assert can_answer(timeline, event.offset)
        if event.kind in (FaultKind.STALL, FaultKind.RESET):
            assert event.server == PROXIED
        assert event.seconds <= MAX_FREEZE_SECONDS


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32))
def test_outages_are_shorter_than_the_reconnect_timeout(seed: int) -> None:
    events = draw_schedule(seed, 100, 4.0)
    timelines = [timeline_of(events, server) for server in range(SERVERS)]
    outage = 0.0
    for tick in range(int(events[-1].offset * 4)):
        is_answered = any(can_answer(timeline, tick / 4) for timeline in timelines)
        outage = 0.0 if is_answered else outage + 0.25
        assert outage < 60 < Task.reconnect_timeout
