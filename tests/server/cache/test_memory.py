"""The store in memory: what fits is kept."""

from __future__ import annotations

import pytest

from infeed_server.cache.store import MemoryStore
from infeed_server.order import SampleOrder

COUNT, BATCH, RECORD = 2000, 25, b"x" * 1000
KEPT_BYTES = 1160


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_job_hits_the_share_that_fits(share: float) -> None:
    store, order = MemoryStore(int(share * COUNT * KEPT_BYTES)), SampleOrder(COUNT, 0, "global")
    hits = 0
    for position in range(0, 4 * COUNT, BATCH):
        for number in order.slots(position, BATCH).index.tolist():
            if store.get(number) is None:
                store.put(number, RECORD)
            elif position >= COUNT:
                hits += 1
    assert hits / (3 * COUNT) == pytest.approx(share, abs=0.02)


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
