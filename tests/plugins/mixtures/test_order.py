"""Tests of `order.py` and `mixture.py`: positions, samples and turns, and the inverse."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import InvalidRequestError, SampleError
from infeed_mixtures.mixture import Mixture
from infeed_mixtures.order import MixedOrder
from infeed_mixtures.permuted import images
from infeed_server.order import Removed, RunOrder, SampleOrder
from infeed_server.order.permutation import permutation

SIZES = {"web": 50, "books": 17, "code": 5}


def order_of(*weights: Any, block: int = 8, begins: Any = (0,), **options: Any) -> MixedOrder:
    stages = tuple(tuple(Fraction(str(weight)) for weight in stage) for stage in weights)
    names = tuple(SIZES)[: len(stages[0])]
    sizes = tuple(SIZES[name] for name in names)
    values = {"count": sum(sizes), "seed": 3, "mode": "global", **options}
    return MixedOrder(mixture=Mixture(names, begins, stages, block), sizes=sizes, **values)


def walk(order: MixedOrder, end: int, step: int = 7) -> list[tuple[int, int]]:
    """Returns sample and turn of positions, asked for in batches."""
    found: list[tuple[int, int]] = []
    for start in range(0, end, step):
        positions = np.arange(start, min(end, start + step))
        index, turns = order.visited(positions)
        found += zip(index.tolist(), turns.tolist(), strict=True)
    return found


@pytest.mark.parametrize("block", [1, 8, 64])
def test_each_sample_has_each_turn_once(block: int) -> None:
    stages = ((0.7, 0.3, 0), (0.2, 0.3, 0.5), (0, 1, 0))
    order = order_of(*stages, block=block, begins=(0, 640, 1280))
    seen = walk(order, 1920)
    for part, (name, size) in enumerate(SIZES.items()):
        own = [
            (index, turn) for index, turn in seen if order.parts_of(np.array([index]))[0] == part
        ]
        assert len(own) == order.mixture.counts(1920)[part]
        assert len(set(own)) == len(own)
        turns = Counter(turn for _, turn in own)
        full = len(own) // size
        assert [turns[turn] for turn in range(full)] == [size] * full, name


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("count", [72, 31, 1500, 5000])
def test_the_inverse_names_every_visit(count: int, restarts: bool) -> None:
    order = order_of((1, 0.5, 0.1), count=count, restarts=restarts and count != 72)
    index, turns = order.visited(np.arange(4 * count))
    for epoch in range(4):
        some = slice(epoch * count, (epoch + 1) * count)
        offsets, ids, found = order.visits(epoch, np.arange(72))
        assert np.array_equal(np.sort(offsets), np.arange(count))
        assert np.array_equal(index[some][offsets], ids)
        assert np.array_equal(turns[some][offsets], found)
    assert order.visits(0, np.array([], np.int64))[0].size == 0


@pytest.mark.parametrize("size", [10, 300])
def test_each_epoch_of_equal_classes_has_every_sample_once(size: int) -> None:
    names = tuple("abcd")
    mixture = Mixture(names, (0,), ((Fraction(1),) * 4,), 1024)
    order = MixedOrder(count=4 * size, seed=2, mode="global", mixture=mixture, sizes=(size,) * 4)
    for epoch in (0, 1, 2, 1000):
        index, turns = order.visited(np.arange(epoch * 4 * size, (epoch + 1) * 4 * size))
        assert np.array_equal(np.sort(index), np.arange(4 * size))
        assert set(turns.tolist()) == {epoch}


@pytest.mark.parametrize("classes", [3, 5, 7, 37])
def test_an_epoch_has_each_class_as_often_or_once_more(classes: int) -> None:
    names = tuple(map(str, range(classes)))
    mixture = Mixture(names, (0,), ((Fraction(1),) * classes,), 1024)
    order = MixedOrder(count=100, seed=2, mode="global", mixture=mixture, sizes=(9,) * classes)
    parts = order.parts_of(order.visited(np.arange(5000))[0]).reshape(50, 100)
    counts = np.stack([np.bincount(epoch, minlength=classes) for epoch in parts])
    assert counts.min() >= 100 // classes
    assert counts.max() <= -(-100 // classes)


@pytest.mark.parametrize("count", [100, 1000, 1500])
def test_epochs_of_any_length_have_the_exact_shares(count: int) -> None:
    weights = (Fraction("0.6"), Fraction("0.3"), Fraction("0.1"))
    order = replace(order_of(weights), mixture=Mixture(tuple(SIZES), (0,), (weights,), 1024))
    parts = order.parts_of(replace(order, count=count).visited(np.arange(4 * count))[0])
    for epoch in parts.reshape(4, count):
        assert np.bincount(epoch).tolist() == [count * weight for weight in weights]


def test_with_restarts_an_epoch_repeats_no_sample() -> None:
    order = order_of((1, 0.5, 0.1), count=33, restarts=True)
    for epoch in range(3):
        index, turns = order.visited(np.arange(epoch * 33, epoch * 33 + 33))
        assert len(set(index.tolist())) == 33
        assert set(turns.tolist()) == {epoch}


def test_another_part_leaves_orders_and_keys_alone() -> None:
    few, more = order_of((3, 1)), order_of((3, 1, 2))

    def drawn(order: MixedOrder, part: int) -> list[Any]:
        slots = RunOrder.of(order).slots(0, 2000)
        mine = order.parts_of(slots.index) == part
        local = slots.index[mine] - order.begins[part]
        return list(zip(local.tolist(), slots.key[mine].tolist(), strict=True))[:300]

    for part in range(2):
        assert drawn(few, part) == drawn(more, part)


@pytest.mark.parametrize("mode", ["none", "window", "stable"])
def test_parts_have_the_mode_of_the_mixture(mode: Any) -> None:
    order = order_of((1, 1), mode=mode, count=67, window=4, block=1)
    index = [index for index, _ in walk(order, 67) if index < 50]
    own = SampleOrder(50, order.orders[0].seed, mode, window=4)
    assert index == own.slots(0, len(index)).index.tolist()
    assert set(order.visits(0, np.arange(50))[1].tolist()) == set(index)


def test_many_permutations_at_once_are_the_single_ones() -> None:
    counts, keys = [5, 65, 1000, 4097, 2**33], np.array([[7, n] for n in range(5)])
    which = np.repeat(np.arange(5), 40)
    values = np.array([value % counts[i] for value, i in enumerate(which.tolist())])
    pairs = zip(values, which.tolist(), strict=True)
    expected = [permutation(counts[i], 7, i).forward(v)[0] for v, i in pairs]
    assert images(values, which, np.array(counts), keys).tolist() == expected


def test_every_rank_sees_every_part() -> None:
    order = order_of((1, 1), block=1024)
    index = order.visited(np.arange(8192))[0]
    shares = [(index[rank::2] < 50).mean() for rank in range(2)]
    assert all(0.47 < share < 0.53 for share in shares)


def test_an_epoch_beyond_the_limit_is_an_error_with_its_position() -> None:
    order = order_of((1, 1), max_epochs=(9, 2), block=1)
    order.require(0, 2 * 17 * 2 - 1)
    with pytest.raises(InvalidRequestError, match=r"'books' .* epoch 3 at position 6[89]"):
        RunOrder.of(order).require(60, 20)


def test_substitutes_are_of_the_same_part() -> None:
    gone = np.array([0, 3, 51, 52])
    order = replace(order_of((1, 1)), removed=Removed(gone))
    slots = RunOrder.of(order).slots(0, 500)
    replaced = slots.index != slots.visited
    assert set(slots.visited[replaced].tolist()) == set(gone.tolist())
    assert not np.isin(slots.index, gone).any()
    assert np.array_equal(order.parts_of(slots.index), order.parts_of(slots.visited))
    with pytest.raises(SampleError, match="17 samples of part 'books' are bad"):
        order.without(np.arange(50, 64))


def test_a_stage_more_continues_a_run_exactly() -> None:
    old = order_of((3, 1), count=64)
    new = order_of((3, 1), (1, 3), begins=(0, 128), count=64)
    run = RunOrder.of(old).extended(64, new)
    assert np.array_equal(run.slots(0, 300).index, RunOrder.of(new).slots(0, 300).index)
    assert new.named(old.name) == old
    with pytest.raises(ValueError, match="its epoch has 65 positions; set epoch: 64"):
        RunOrder.of(old).extended(64, replace(new, count=65))
    with pytest.raises(ValueError, match="as another stage"):
        new.named(order_of((2, 1), count=64).name)
