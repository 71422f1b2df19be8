"""The store in memory: what fits is kept, and with several jobs what is needed first."""

from __future__ import annotations

import numpy as np
import pytest

from infeed_server.cache.memory import MemoryStore, NextUseStore
from infeed_server.order import SampleOrder

COUNT, BATCH, RECORD = 2000, 25, b"x" * 1000
KEPT_BYTES = 1160


def hit_rate(store: MemoryStore, jobs: int, epochs: int = 4) -> float:
    """Reads with jobs of one seed each, in turn; returns the hits after the first epoch."""
    orders = [SampleOrder(COUNT, seed, "global") for seed in range(jobs)]
    hits, reads, position = 0, 0, 0
    while position < epochs * COUNT:
        position += BATCH
        for order in orders:
            index = order.slots(position - BATCH, BATCH).index
            found = {number: store.get(number) for number in index.tolist()}
            if position > COUNT:
                hits += sum(record is not None for record in found.values())
                reads += BATCH
            if isinstance(store, NextUseStore):
                ahead = [other.next_positions(index, position) for other in orders]
                times = np.min(ahead, axis=0).astype(float).tolist()
                store.plan(dict(zip(found, times, strict=True)))
            for number, record in found.items():
                if record is None:
                    store.put(number, RECORD)
    return hits / reads


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_one_job_hits_the_share_that_fits(share: float) -> None:
    for store in (MemoryStore, NextUseStore):
        rate = hit_rate(store(int(share * COUNT * KEPT_BYTES)), jobs=1)
        assert rate == pytest.approx(share, abs=0.02)


def test_jobs_of_other_seeds_hit_more_by_next_use() -> None:
    budget = COUNT // 4 * KEPT_BYTES
    assert hit_rate(MemoryStore(budget), jobs=2) == pytest.approx(0.25, abs=0.02)
    store = NextUseStore(budget)
    assert hit_rate(store, jobs=2) >= 0.45
    assert store.used_bytes <= budget
    assert len(store._last) <= 2 * COUNT


def test_record_that_does_not_fit_leaves_others() -> None:
    store = MemoryStore(2 * KEPT_BYTES)
    for index in (0, 0, 1, 2):
        store.put(index, RECORD)
    store.put(3, b"x" * 5000)
    assert [index for index in range(4) if store.get(index)] == [0, 1]
    assert store.used_bytes == 2 * KEPT_BYTES


def test_full_store_takes_no_more() -> None:
    store = MemoryStore(10 * KEPT_BYTES)
    for index in range(9):
        store.put(index, RECORD)
    for _ in range(63):
        store.put(9, b"x" * 5000)
    assert store.takes(9)
    store.put(9, RECORD)  # a small one behind many large ones
    for index in range(10, 74):
        assert store.takes(index)
        store.put(index, RECORD)
    assert not store.takes(74)
    assert store.used_bytes == 10 * KEPT_BYTES


def test_full_store_takes_what_is_needed_before_another() -> None:
    store = NextUseStore(KEPT_BYTES)
    store.plan({0: 5.0})
    store.put(0, RECORD)
    for index in range(1, 65):
        store.plan({index: 6.0})
        store.put(index, RECORD)
    store.plan({65: 7.0, 66: 4.0})
    assert [store.takes(index) for index in (65, 66)] == [False, True]
    store.put(66, RECORD)
    assert store.get(66)
    store.plan({67: 8.0})
    assert not store.takes(67)  # it is as full as before
    assert store._uses.keys() == {66}


def test_records_that_no_job_is_known_to_need_make_room_first() -> None:
    store = NextUseStore(2 * KEPT_BYTES)
    store.put(0, RECORD)  # of a job that has just left
    store.plan({1: 5.0, 2: 3.0})
    for index in (1, 2, 2, 1):  # by two threads
        store.put(index, RECORD)
    assert [index for index in range(3) if store.get(index)] == [1, 2]
    store.plan({3: 1.0})
    store.put(3, b"x" * 5000)
    assert [index for index in range(4) if store.get(index)] == [1, 2]
    assert store.used_bytes == 2 * KEPT_BYTES
    assert store._uses.keys() == {1, 2}
