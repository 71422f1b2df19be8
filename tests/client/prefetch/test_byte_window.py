"""Prefetch window: its depth and its bound in bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.prefetch.byte_window import MAX_BATCHES, MIN_BATCHES, PrefetchWindow


@pytest.mark.parametrize(
    ("prefetch_bytes", "batch_bytes", "depth"),
    [
        (1000, 100, 10),
        (1000, 501, MIN_BATCHES),
        (0, 100, MIN_BATCHES),
        (1 << 30, 1, MAX_BATCHES),
        (1000, None, 2),
    ],
)
def test_depth_follows_the_batch_size_within_bounds(
    prefetch_bytes: int, batch_bytes: int | None, depth: int
) -> None:
    window = PrefetchWindow(prefetch_bytes, batch_bytes)
    assert (window.depth, window.step_limit) == (depth, depth)


def test_largest_received_batch_counts_if_sizes_vary() -> None:
    window = PrefetchWindow(1000, None)
    for size in (100, 250, 50):
        window.on_received(size)
    assert (window.depth, window.received_bytes, window.max_bytes) == (4, 400, 1000)
    window.on_received(900)
    assert (window.depth, window.max_bytes) == (MIN_BATCHES, 1800)


@given(
    prefetch_bytes=st.integers(0, 1000),
    batch_bytes=st.integers(1, 300),
    consumes=st.lists(st.booleans(), max_size=100),
)
def test_requested_and_not_consumed_bytes_stay_within_the_bound(
    prefetch_bytes: int, batch_bytes: int, consumes: list[bool]
) -> None:
    window = PrefetchWindow(prefetch_bytes, batch_bytes)
    requested = received = consumed = 0
    for consume in consumes:
        if consume and received > consumed:
            consumed += 1
            window.on_consumed(consumed)
        elif requested > received:
            window.on_received(batch_bytes)
            received += 1
        requested = max(requested, window.step_limit)
        assert (requested - consumed) * batch_bytes <= window.max_bytes
        assert window.received_bytes == received * batch_bytes
