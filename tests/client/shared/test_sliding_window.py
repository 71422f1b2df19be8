"""Sliding windows of counters."""

from __future__ import annotations

import pytest

from infeed.shared.sliding_window import SlidingWindow


def test_window_without_a_sample_is_empty() -> None:
    window = SlidingWindow()
    assert window.is_empty
    assert window.difference(5.0, {"steps": 3}) == (0.0, {"steps": 0})


def test_window_covers_ten_seconds() -> None:
    window = SlidingWindow()
    for second in range(100):
        window.sample(float(second), {"steps": 2 * second})
    assert window.difference(99.5, {"steps": 199}) == (10.5, {"steps": 199 - 178})


def test_samples_are_a_second_apart() -> None:
    window = SlidingWindow()
    for tick in range(1000):
        window.sample(tick / 100, {"steps": tick})
    seconds, grown = window.difference(20.0, {"steps": 2000})
    assert seconds == pytest.approx(20 - 9.0)
    assert grown["steps"] == pytest.approx(100 * seconds)


def test_window_reaches_back_to_two_events() -> None:
    window = SlidingWindow("steps")
    for second in range(121):
        window.sample(float(second), {"steps": second // 40})
    assert window.difference(120.0, {"steps": 3}) == (41.0, {"steps": 2})
