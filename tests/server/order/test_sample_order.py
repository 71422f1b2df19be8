"""Tests of the sample order: complete epochs, any range, keys by sample, and its stability."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed_server.order import Mode, SampleOrder

MODES: tuple[Mode, ...] = ("global", "window", "none")


@pytest.mark.parametrize("mode", MODES)
@examples(15)
@given(
    count=st.integers(1, 400),
    seed=st.integers(0, 2**63 - 1),
    block=st.integers(1, 50),
    window=st.integers(1, 120),
    epoch=st.integers(0, 5),
)
def test_epoch_has_each_sample_once(
    mode: Mode, *, count: int, seed: int, block: int, window: int, epoch: int
) -> None:
    slots = SampleOrder(count, seed, mode, block, window).slots(epoch * count, count)
    assert sorted(slots.index) == list(range(count))
    assert set(slots.epoch) == {epoch}


@pytest.mark.parametrize("mode", MODES)
@examples(12)
@given(
    # Around the sizes of a block, a window and a range, and far from them.
    count=st.sampled_from([3, 6, 7, 8, 13, 29, 30, 31, 59, 60, 61, 200]),
    start=st.integers(0, 1000),
    cut=st.integers(1, 59),
)
def test_parts_of_a_range_are_the_same(mode: Mode, count: int, start: int, cut: int) -> None:
    order = SampleOrder(count, 17, mode, block=7, window=30)
    whole = order.slots(start, 60)
    parts = [order.slots(start, cut), order.slots(start + cut, 60 - cut)]
    for name in ("index", "epoch", "key"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(getattr(whole, name), joined)


def test_mode_none_keeps_the_source_order() -> None:
    assert SampleOrder(5, 1, "none").slots(3, 5).index.tolist() == [3, 4, 0, 1, 2]


def test_seeds_and_epochs_differ() -> None:
    first = SampleOrder(100, 1, "global").slots(0, 100).index
    assert not np.array_equal(first, SampleOrder(100, 2, "global").slots(0, 100).index)
    assert not np.array_equal(first, SampleOrder(100, 1, "global").slots(100, 100).index)


def test_window_mode_reads_few_blocks_at_a_time() -> None:
    index = SampleOrder(100_000, 1, "window", block=1000, window=4000).slots(0, 4000).index
    blocks = {int(block) for block in index // 1000}
    # Four blocks, or five if one is the shorter last block.
    assert len(blocks) <= 5


def test_each_window_has_a_permutation_of_its_own() -> None:
    # A single block, so that only windows are permuted.
    order = SampleOrder(100, 5, "window", block=100, window=50)
    epochs = [order.slots(epoch * 100, 100).index for epoch in (0, 1)]
    windows = [tuple(part) for index in epochs for part in (index[:50], index[50:] - 50)]
    assert len(set(windows)) == 4


def test_each_epoch_permutes_blocks_in_its_own_way() -> None:
    # A window holds one sample, so that only blocks are permuted.
    order = SampleOrder(100, 5, "window", block=2, window=1)
    first, second = (order.slots(epoch * 100, 100).index for epoch in (0, 1))
    assert first.tolist() != second.tolist()


def test_keys_depend_on_seed_epoch_and_index_alone() -> None:
    shuffled = SampleOrder(50, 9, "global").slots(100, 50)
    plain = SampleOrder(50, 9, "none").slots(100, 50)
    assert np.array_equal(shuffled.key, plain.key[shuffled.index])
    other_epoch = SampleOrder(50, 9, "none").slots(50, 50)
    assert not (plain.key == other_epoch.key).all(axis=1).any()
    assert len({tuple(key) for key in plain.key}) == 50


def test_largest_positions_are_in_range() -> None:
    order = SampleOrder(1_000_003, 2**63 - 1, "window")
    slots = order.slots(2**61, 8)
    assert ((slots.index >= 0) & (slots.index < 1_000_003)).all()


def test_substitute_is_another_sample_and_deterministic() -> None:
    order = SampleOrder(20, 3, "global")
    slots = order.slots(0, 20)
    for index, key in zip(slots.index.tolist(), slots.key, strict=True):
        first, again = order.substitute(index, key), order.substitute(index, key)
        assert first.index[0] != index
        assert first.index[0] == again.index[0]
        assert np.array_equal(first.key, again.key)
    alone = SampleOrder(1, 3).slots(0, 1)
    assert SampleOrder(1, 3).substitute(0, alone.key[0]).index.tolist() == [0]


def test_order_is_stable() -> None:
    """Saved cursors depend on this order: a change must increment `ALGORITHM`."""
    few = SampleOrder(10, 17, "global").slots(0, 10)
    assert few.index.tolist() == [5, 4, 3, 9, 1, 6, 8, 7, 0, 2]
    most = SampleOrder(64, 17, "global").slots(0, 5).index
    assert most.tolist() == [20, 47, 5, 4, 61]
    assert few.key[0].tolist() == [7370768415382796334, 1519223145585512385]
    many = SampleOrder(1000, 17, "global").slots(0, 5)
    assert many.index.tolist() == [167, 521, 813, 430, 193]


@pytest.mark.parametrize("mode", MODES)
@examples(15)
@given(
    count=st.integers(1, 300),
    seed=st.integers(0, 2**63 - 1),
    block=st.integers(1, 50),
    window=st.integers(1, 120),
    epoch=st.integers(0, 3),
)
def test_offset_of_each_sample_is_its_place_in_the_epoch(
    mode: Mode, *, count: int, seed: int, block: int, window: int, epoch: int
) -> None:
    order = SampleOrder(count, seed, mode, block, window)
    places = order.offsets(epoch, order.slots(epoch * count, count).index)
    assert places.tolist() == list(range(count))
