"""The window of a feed: a bound in bytes on what was asked for and not taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.window import FEWEST, MOST, Window


@pytest.mark.parametrize(
    ("prefetch_bytes", "batch_bytes", "depth"),
    [(1000, 100, 10), (1000, 501, FEWEST), (0, 100, FEWEST), (1 << 30, 1, MOST), (1000, None, 2)],
)
def test_its_depth(prefetch_bytes: int, batch_bytes: int | None, depth: int) -> None:
    window = Window(prefetch_bytes, batch_bytes)
    assert (window.depth, window.limit) == (depth, depth)


def test_it_moves_as_batches_are_taken() -> None:
    window = Window(1000, 100)
    for _ in range(3):
        window.saw(100)
    assert (window.waiting_bytes, window.limit) == (300, 10)
    window.took(100)
    assert (window.waiting_bytes, window.limit) == (200, 11)


def test_the_largest_batch_seen_counts_where_sizes_vary() -> None:
    window = Window(1000, None)
    for size in (100, 250, 50):
        window.saw(size)
    assert (window.depth, window.waiting_bytes, window.limit_bytes) == (4, 400, 1000)
    window.saw(900)
    assert (window.depth, window.limit_bytes) == (FEWEST, 1800)


@given(
    prefetch_bytes=st.integers(0, 1000),
    batch_bytes=st.integers(1, 300),
    takes=st.lists(st.booleans(), max_size=100),
)
def test_what_is_asked_for_and_not_taken_stays_within_its_bound(
    prefetch_bytes: int, batch_bytes: int, takes: list[bool]
) -> None:
    window = Window(prefetch_bytes, batch_bytes)
    asked = arrived = taken = 0
    for take in takes:
        if take and arrived > taken:
            window.took(batch_bytes)
            taken += 1
        elif asked > arrived:
            window.saw(batch_bytes)
            arrived += 1
        asked = max(asked, window.limit)
        assert (asked - taken) * batch_bytes <= window.limit_bytes
        assert window.waiting_bytes == (arrived - taken) * batch_bytes
