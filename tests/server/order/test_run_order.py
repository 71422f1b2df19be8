"""Tests of `order/run_order.py`, against lists in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from infeed_server.order import RunOrder, SampleOrder
from infeed_server.order.removed import Removed


class History:
    """A run that is extended at random, and the samples of each position so far."""

    def __init__(self, rng: random.Random, mode: Any) -> None:
        self.rng = rng
        self.shrinks = rng.random() < 0.5
        order = SampleOrder(rng.randint(1, 120), rng.randint(0, 9), mode, 4, 16)
        self.run = RunOrder.of(order)
        self.began = {0: order}
        """The order of each epoch that begins with another one than the epoch before."""
        self.skipped: dict[int, Counter[int]] = {}
        """Samples of epochs that were left out."""
        self.delivered: list[tuple[int, int]] = []
        """Epoch and sample of each position."""

    def read(self, count: int) -> None:
        slots = self.run.slots(len(self.delivered), count) if count else None
        if slots is not None:
            self.delivered += zip(slots.epoch.tolist(), slots.index.tolist(), strict=True)

    def extend(self) -> None:
        """Changes one thing at random."""
        order, skip, start = self.run.last, 0, len(self.delivered)
        ids = order.removed.ids.tolist()
        match self.rng.choice(["add", "remove", "seed", "skip"]):
            case "add":
                order = replace(order, count=order.count + self.rng.randint(1, 30))
            case "remove":
                left = [one for one in range(order.count) if one not in ids]
                ids += self.rng.sample(left, self.rng.randint(0, (len(left) - 1) // 2))
                gone = Removed(np.array(sorted(ids), np.int64), bool(ids) and self.shrinks)
                order = replace(order, removed=gone)
            case "seed":
                order = replace(order, seed=self.rng.randint(0, 9))
            case "skip":
                skip = self.rng.randint(1, 40)
        if skip:
            slots = self.run.slots(start, skip)
            for epoch, index in zip(slots.epoch.tolist(), slots.index.tolist(), strict=True):
                self.skipped.setdefault(epoch, Counter())[index] += 1
        self.run = self.run.extended(start, order, skip)
        epoch, offset, _ = self.run.place(start)
        self.began[epoch + bool(offset)] = order


MODES = ["global", "window", "none", "stable"]


@pytest.mark.parametrize("mode", MODES)
def test_random_histories_visit_each_sample_once(mode: Any) -> None:
    check_histories(mode, range(6))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_many_random_histories(mode: Any) -> None:
    check_histories(mode, range(6, 250))


def check_histories(mode: Any, seeds: range) -> None:
    for seed in seeds:
        history = History(random.Random(seed), mode)
        history.read(1)
        for _ in range(history.rng.randint(1, 12)):
            history.read(history.rng.randint(0, 40))
            count = len(history.delivered)
            before = history.run.slots(0, count)
            history.extend()
            after = history.run.slots(0, count)
            assert before.index.tolist() == after.index.tolist(), seed
            assert before.key.tolist() == after.key.tolist(), seed
        history.read(200)
        slots = history.run.slots(0, len(history.delivered))
        found = [*zip(slots.epoch.tolist(), slots.index.tolist(), strict=True)]
        assert history.delivered == found, seed
        check_epochs(history, seed)


def check_epochs(history: History, seed: int) -> None:
    """Checks that each epoch has the samples of the order in which it begins, once each, beside
    substitutes."""
    by_epoch: dict[int, Counter[int]] = {}
    for epoch, index in history.delivered:
        by_epoch.setdefault(epoch, Counter())[index] += 1
    removed = set(history.run.last.removed.ids.tolist())
    for epoch, found in by_epoch.items():
        total = found + history.skipped.get(epoch, Counter())
        if not removed:
            assert max(total.values()) == 1, (seed, epoch)
        if epoch < max(by_epoch):
            order = history.began[max(first for first in history.began if first <= epoch)]
            assert total.total() == order.length, (seed, epoch)
            assert total.keys() >= set(range(order.count)) - removed, (seed, epoch)


@pytest.mark.parametrize("mode", MODES)
def test_places_are_the_inverse_of_positions(mode: Any) -> None:
    history = History(random.Random(7), mode)
    for _ in range(9):
        history.read(30)
        history.extend()
    run = history.run
    for position in range(600):
        epoch, offset, _ = run.place(position)
        assert run.position(epoch, offset) == position
        assert run.slots(position, 1).epoch[0] == epoch
    with pytest.raises(ValueError, match="offset 0 of epoch -1 lies before the run"):
        run.position(-1, 0)


@pytest.mark.parametrize("mode", MODES)
def test_offsets_are_the_inverse_of_samples_for_all_of_100_000(mode: Any) -> None:
    order = SampleOrder(100_000, 3, mode)
    everything = np.arange(order.count)
    offsets = order.offsets(7, everything)
    assert np.array_equal(order.samples(7, offsets), everything)


def test_bad_samples_of_an_old_part_have_its_substitutes() -> None:
    """Their slots stay as they were when the part was the run's last one."""
    old, new = SampleOrder(50, 1, "global"), SampleOrder(90, 1, "global")
    bad = np.array([3, 30])
    run = RunOrder.of(old)
    before, after = run.without(bad), run.extended(100, new).without(bad)
    assert np.array_equal(before.slots(0, 100).index, after.slots(0, 100).index)
    assert not np.isin(after.slots(0, 300).index, bad).any()
    assert (after.at(99).order.count, after.at(100).order.count) == (50, 90)


@pytest.mark.parametrize("mode", MODES)
def test_removed_samples_have_no_place_where_epochs_shrink(mode: Any) -> None:
    gone = np.array([2, 5, 19])
    order = SampleOrder(20, 3, mode, 4, 8, Removed(gone, shrinks=True))
    for epoch in range(3):
        assert order.offsets(epoch, gone).tolist() == [-1] * 3


@pytest.mark.parametrize("shrinks", [False, True])
def test_an_epoch_goes_on_in_its_order_with_substitutes(shrinks: bool) -> None:
    before = SampleOrder(20, 3, "global")
    plain = before.slots(0, 20).index
    after = replace(before, removed=Removed(np.sort(plain[[9, 15]]), shrinks=shrinks))
    slots = RunOrder.of(before).extended(7, after).slots(0, 20)
    others = np.setdiff1d(np.arange(20), [9, 15])
    assert np.array_equal(slots.index[others], plain[others])
    assert not np.isin(slots.index[[9, 15]], plain[[9, 15]]).any()
    assert np.array_equal(slots.visited, plain)


def test_orders_that_lose_samples_are_refused() -> None:
    order = SampleOrder(20, 3, "global")
    run = RunOrder.of(order).extended(7, order)
    with pytest.raises(ValueError, match="it has 19 samples, fewer than the 20 before"):
        run.extended(7, replace(order, count=19))
    gone = run.extended(7, replace(order, removed=Removed(np.array([2]))))
    with pytest.raises(ValueError, match="removed samples reappear"):
        gone.extended(7, order)
    with pytest.raises(ValueError, match="lies beyond all positions"):
        run.extended(7, order, 1 << 62)
