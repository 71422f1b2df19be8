"""The budget of frames: what a peer may send, and what entitles it to more."""

from __future__ import annotations

import pytest
from tests.harness.clock import ManualClock

from infeed_server.http2.frame_budget import (
    ADMITTED_RATE,
    STREAM_RATE,
    UNADMITTED_RATE,
    FrameBudget,
)

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def budget(clock: ManualClock) -> FrameBudget:
    return FrameBudget(clock)


def frames_left(budget: FrameBudget, kind: int = PING, stream_id: int = 0, size: int = 0) -> int:
    """Uses up the budget; returns how many such frames it allowed."""
    count = 0
    while budget.charge(kind, stream_id, size):
        count += 1
        assert count < 100_000
    return count


def test_peer_without_a_call_has_few_frames(budget: FrameBudget, clock: ManualClock) -> None:
    assert frames_left(budget) == UNADMITTED_RATE.burst <= ADMITTED_RATE.burst / 5
    clock.now += 2
    assert frames_left(budget) == 2 * UNADMITTED_RATE.per_second
    clock.now += 1e6
    assert frames_left(budget) == UNADMITTED_RATE.burst


def test_authenticated_call_entitles_to_more_once(budget: FrameBudget, clock: ManualClock) -> None:
    budget.admit(1, authenticated=True)
    budget.admit(3, authenticated=True)
    assert frames_left(budget) == ADMITTED_RATE.burst
    budget.admit(5, authenticated=True)
    assert frames_left(budget) == 0
    clock.now += 1
    assert frames_left(budget) == ADMITTED_RATE.per_second


def test_call_of_any_peer_entitles_to_no_more(budget: FrameBudget) -> None:
    budget.admit(1, authenticated=False)
    assert frames_left(budget, DATA, 1) == UNADMITTED_RATE.burst


@pytest.mark.parametrize("kind", [DATA, WINDOW_UPDATE])
def test_streams_pay_for_their_own_frames_first(budget: FrameBudget, kind: int) -> None:
    for stream_id in (1, 3):
        budget.admit(stream_id, authenticated=True)
        for _ in range(int(STREAM_RATE.burst)):
            assert budget.charge(kind, stream_id, 30)
    assert frames_left(budget, kind, 1) == ADMITTED_RATE.burst


def test_closed_and_further_streams_have_no_frames_of_their_own(budget: FrameBudget) -> None:
    for number in range(100):
        budget.admit(2 * number + 1, authenticated=True)
    budget.forget(1)
    assert frames_left(budget, DATA, 199) == ADMITTED_RATE.burst
    assert frames_left(budget, DATA, 1) == 0
    assert frames_left(budget, DATA, 3) == STREAM_RATE.burst


@pytest.mark.parametrize(("kind", "size"), [(HEADERS, 20_000), (SETTINGS, 6000)])
def test_long_frames_cost_more(budget: FrameBudget, kind: int, size: int) -> None:
    assert frames_left(budget, kind, 1, size) <= UNADMITTED_RATE.burst // (size // 256)


def test_sent_messages_entitle_to_requests_and_window_updates(budget: FrameBudget) -> None:
    budget.admit(1, authenticated=True)
    frames_left(budget, DATA, 1)
    for _ in range(10_000):  # a request, a tiny batch, and updates of both windows
        budget.on_sent(1, 50, complete=True)
        assert budget.charge(DATA, 1, 30)
        assert budget.charge(WINDOW_UPDATE, 1, 4)
        assert budget.charge(WINDOW_UPDATE, 0, 4)
    for _ in range(10_000):  # windows of 64 KiB, updated when they are half used
        budget.on_sent(1, 32 << 10, complete=False)
        assert budget.charge(WINDOW_UPDATE, 1, 4)
        assert budget.charge(WINDOW_UPDATE, 0, 4)


def test_resets_for_data_on_its_way_are_allowed(budget: FrameBudget) -> None:
    """Some peers send one for each frame of a stream that they have reset."""
    budget.admit(1, authenticated=True)
    frames_left(budget)
    budget.on_sent(1, 64 << 20, complete=False)
    budget.forget(1)
    for _ in range((64 << 20) // (16 << 10)):
        assert budget.charge(RST_STREAM, 1, 4)


def test_frames_that_sent_data_entitles_to_are_bounded(budget: FrameBudget) -> None:
    budget.admit(1, authenticated=True)
    for _ in range(10):
        budget.on_sent(1, 1 << 30, complete=True)
    earned = 1 << 13
    assert frames_left(budget) == ADMITTED_RATE.burst + earned
    assert budget.take_unearned() == ADMITTED_RATE.burst


def test_tiny_parts_of_a_message_entitle_to_nothing(budget: FrameBudget) -> None:
    budget.admit(1, authenticated=True)
    count = 0
    while count < 10_000 and budget.charge(WINDOW_UPDATE, 1, 4):
        budget.on_sent(1, 1, complete=False)
        count += 1
    assert count < 1.01 * (STREAM_RATE.burst + ADMITTED_RATE.burst)


def test_answered_calls_entitle_to_further_ones(budget: FrameBudget) -> None:
    for number in range(10_000):
        stream_id = 2 * number + 1
        assert budget.charge(HEADERS, stream_id, 100)
        budget.admit(stream_id, authenticated=False)
        assert budget.charge(DATA, stream_id, 100)
        budget.on_answered(stream_id)
        budget.forget(stream_id)


def test_refused_calls_entitle_to_nothing(budget: FrameBudget) -> None:
    count = 0
    while count < 10_000 and budget.charge(HEADERS, 2 * count + 1, 100):
        budget.on_answered(2 * count + 1)
        count += 1
    assert count <= UNADMITTED_RATE.burst


def test_frames_that_sent_data_entitles_to_are_earned(budget: FrameBudget) -> None:
    budget.admit(1, authenticated=True)
    for _ in range(5):
        assert budget.charge(DATA, 1, 0)
    assert budget.charge(HEADERS, 3, 0)
    assert budget.take_unearned() == 5 + 4
    assert budget.take_unearned() == 0
    budget.on_sent(1, 1 << 14, complete=True)
    for _ in range(8):  # 2 for the bytes, 4 for the message
        assert budget.charge(WINDOW_UPDATE, 1, 4)
    assert budget.take_unearned() == 2


def test_answered_calls_are_not_earned(budget: FrameBudget) -> None:
    budget.admit(1, authenticated=True)
    budget.on_answered(1)
    assert budget.charge(HEADERS, 3, 0)
    assert budget.take_unearned() == 4
