"""Tests of the memory budget: two batches for each stream, more while bytes are free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.clock import ManualClock
from tests.harness.examples import examples

from infeed_server.engines.memory_budget import (
    MAX_BATCHES,
    MAX_STREAM_BYTES,
    MIN_BATCHES,
    MemoryBudget,
    StreamQuota,
)

LARGE = 1 << 50


def open_quota(budget: MemoryBudget, size: int = 0, pipeline: str = "p") -> StreamQuota:
    quota = budget.open_quota(pipeline)
    quota.set_batch_bytes(size)
    return quota


def fill(quota: StreamQuota) -> int:
    """Acquires batches until none is left; returns how many the quota then holds."""
    while quota.try_acquire():
        pass
    return quota.batches


def test_minimum_while_the_batch_size_is_unknown() -> None:
    quota = open_quota(MemoryBudget(LARGE))
    assert fill(quota) == MIN_BATCHES
    quota.set_batch_bytes(1)
    assert fill(quota) == MAX_BATCHES


def test_stream_has_its_own_limit_in_bytes() -> None:
    budget = MemoryBudget(LARGE)
    assert fill(open_quota(budget, MAX_STREAM_BYTES // 5)) == 5
    assert fill(open_quota(budget, MAX_STREAM_BYTES // 5 + 1)) == 4


def test_each_batch_counts_as_the_largest() -> None:
    budget = MemoryBudget(90_000)
    quota = open_quota(budget, 1000)
    fill(quota)
    quota.set_batch_bytes(3000)
    quota.set_batch_bytes(2000)
    assert budget.held_bytes("p") == 30_000
    assert not quota.try_acquire()
    for _ in range(8):
        quota.release()
    assert fill(quota) == 3


def test_pipelines_share_the_budget_and_are_counted_apart() -> None:
    budget = MemoryBudget(90_000)
    first, second = open_quota(budget, 1000, "a"), open_quota(budget, 500, "b")
    assert (fill(first), fill(second)) == (10, MAX_BATCHES)
    assert (budget.held_bytes("a"), budget.held_bytes("b")) == (10_000, 8000)
    third = open_quota(budget, 9_000, "a")
    assert fill(third) == MIN_BATCHES
    assert (budget.held_batches("a"), budget.held_batches("c")) == (12, 0)


def test_closed_quota_holds_nothing() -> None:
    budget = MemoryBudget(90_000)
    quota = open_quota(budget, 1000)
    fill(quota)
    quota.close()
    quota.close()
    assert (budget.held_bytes("p"), budget.used) == (0, 0)
    assert not budget.quotas
    quota.release()
    quota.set_batch_bytes(5000)
    assert not quota.try_acquire()
    assert budget.used == 0
    assert fill(open_quota(budget, 1000)) == 10


@pytest.mark.parametrize("stopped", [1, 4, 16, 64])
def test_stalled_streams_leave_bytes_to_others(stopped: int) -> None:
    budget = MemoryBudget(10_000_000)
    for _ in range(stopped):
        fill(open_quota(budget, 10_000))
    free = budget.limit - budget.used
    assert free >= budget.limit * (8 / 9) ** stopped * 0.9
    reader = open_quota(budget, 1000)
    assert fill(reader) >= min(MAX_BATCHES, free // 9 // 1000 - 1)


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", *3 * ["try_acquire"], "release", "set_batch_bytes", "close"]),
        st.integers(0, 7),
        st.integers(0, 3000),
    ),
    max_size=300,
)


@examples(300)
@given(limit=st.integers(0, 50_000), steps=STEPS)
def test_total_is_the_budget_and_two_batches_each_at_most(limit: int, steps: list[Step]) -> None:
    budget = MemoryBudget(limit)
    quotas: list[StreamQuota] = []
    for action, which, size in steps:
        if action == "open":
            quotas.append(open_quota(budget, size))
        elif quotas:
            quota = quotas[which % len(quotas)]
            held, closed = quota.batches, quota not in budget.quotas
            if action == "set_batch_bytes":
                # Only a size that is known from the beginning keeps the bound.
                quota.set_batch_bytes(min(size, quota._batch_bytes))
            elif action == "try_acquire":
                acquired = quota.try_acquire()
                assert acquired or closed or held >= MIN_BATCHES
                assert not (acquired and closed)
            else:
                getattr(quota, action)()
        assert budget.used == budget.held_bytes("p") == sum(quota.bytes for quota in quotas)
        beyond = sum(max(0, quota.batches - MIN_BATCHES) * quota._batch_bytes for quota in quotas)
        assert beyond <= limit
        assert all(quota.batches <= MAX_BATCHES for quota in quotas)


def test_shortage_is_the_time_in_which_only_the_limit_has_no_room() -> None:
    clock = ManualClock()
    budget = MemoryBudget(90_000, clock)
    quota = open_quota(budget, 30_000)
    assert fill(quota) == MIN_BATCHES
    clock.now += 2.0
    assert quota.held_seconds() == {"unsent_seconds": 2.0, "shortage_seconds": 2.0}
    quota.release()
    assert quota.try_acquire()
    clock.now += 4.0
    assert quota.held_seconds()["shortage_seconds"] == 2.0
    assert not quota.try_acquire()
    clock.now += 1.0
    quota.close()
    clock.now += 8.0
    assert quota.held_seconds()["shortage_seconds"] == 3.0


@pytest.mark.parametrize("size", [1, MAX_STREAM_BYTES, 0])
def test_bound_of_a_stream_is_no_shortage_of_memory(size: int) -> None:
    clock = ManualClock()
    quota = open_quota(MemoryBudget(LARGE, clock), size)
    assert fill(quota) >= MIN_BATCHES
    clock.now += 2.0
    assert quota.held_seconds() == {"unsent_seconds": 2.0, "shortage_seconds": 0.0}
