"""Tests of `order/run_order.py`, against lists in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest

from infeed.shared.spec.segment import Segment, end_of_epochs
from infeed_server.order import SampleOrder
from infeed_server.order.removed import Removed
from infeed_server.order.run_order import Part, RunOrder, as_run, begin, extend


class History:
    """A run that is amended at random, and the samples of each position so far."""

    def __init__(self, rng: random.Random, mode: Any) -> None:
        self.rng = rng
        self.removed: list[int] = []
        self.shrinks = rng.random() < 0.5
        self.order = SampleOrder(rng.randint(1, 120), rng.randint(0, 9), mode, 4, 16)
        self.batch = rng.randint(1, 7)
        first = begin(self.order, self.segment(0, self.order))
        self.lineage, self.orders = [first], [self.order]
        self.skipped: set[int] = set()
        """Positions of the plain stream that were left out, by epoch and sample."""
        self.visited: dict[int, Counter[int]] = {}
        self.delivered: list[tuple[int, int]] = []
        """Epoch and sample of each position."""

    def segment(self, step: int, order: SampleOrder) -> partial[Segment]:
        removed = len(self.removed)
        return partial(
            Segment,
            step=step,
            pipeline="p",
            fingerprint="f",
            seed=order.seed,
            batch_size=self.batch,
            world_size=1,
            sample_count=order.count,
            shuffle=order.mode,
            removed=removed,
            shrinks=bool(removed) and self.shrinks,
        )

    @property
    def run(self) -> RunOrder:
        return RunOrder(tuple(self.lineage), self.orders)

    def read(self, steps: int) -> None:
        """Takes steps, and checks that nothing that was delivered has changed."""
        position = len(self.delivered)
        slots = self.run.slots(position, steps * self.batch)
        self.delivered += zip(slots.epoch.tolist(), slots.index.tolist(), strict=True)

    def amend(self) -> None:
        """Changes one thing at random."""
        count, order, skip = self.order.count, self.order, 0
        match self.rng.choice(["add", "remove", "seed", "batch", "skip"]):
            case "add":
                count += self.rng.randint(1, 30)
            case "remove":
                left = [one for one in range(count) if one not in self.removed]
                self.removed += self.rng.sample(left, self.rng.randint(0, (len(left) - 1) // 2))
            case "seed":
                order = SampleOrder(count, self.rng.randint(0, 9), order.mode, 4, 16)
            case "batch":
                self.batch = self.rng.randint(1, 7)
            case "skip":
                skip = self.rng.randint(1, 40)
        ids = np.array(sorted(self.removed), np.int64)
        removed = Removed(ids, shrinks=bool(self.removed) and self.shrinks)
        order = SampleOrder(count, order.seed, order.mode, 4, 16, removed)
        last = Part(self.lineage[-1], self.orders[-1], self.run.parts[-1].parent)
        start = len(self.delivered)
        made = extend(last, start, order, self.segment(start, order), skip)
        for position in range(start, start + skip):
            epoch = int(last.locate(np.array([position]))[0][0])
            slots = self.run.slots(position, 1)
            self.visited.setdefault(epoch, Counter())[int(slots.index[0])] += 1
        self.lineage.append(made)
        self.orders.append(order)
        self.order = order


MODES = ["global", "window", "none", "stable"]


@pytest.mark.parametrize("mode", MODES)
def test_random_histories_visit_each_sample_once(mode: Any) -> None:
    check_histories(mode, range(20))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_many_random_histories(mode: Any) -> None:
    check_histories(mode, range(20, 250))


def check_histories(mode: Any, seeds: range) -> None:
    for seed in seeds:
        history = History(random.Random(seed), mode)
        for _ in range(history.rng.randint(1, 12)):
            history.read(history.rng.randint(0, 40))
            before = history.run.slots(0, len(history.delivered))
            history.amend()
            after = history.run.slots(0, len(history.delivered))
            assert before.index.tolist() == after.index.tolist(), seed
            assert before.key.tolist() == after.key.tolist(), seed
        history.read(200)
        run = history.run
        slots = run.slots(0, len(history.delivered))
        assert history.delivered == list(
            zip(slots.epoch.tolist(), slots.index.tolist(), strict=True)
        )
        check_epochs(history, seed)
        check_inverse(history, seed)


def check_epochs(history: History, seed: int) -> None:
    """Checks that each epoch has the samples of the order in which it begins, once each, beside
    substitutes."""
    by_epoch: dict[int, Counter[int]] = {}
    for epoch, index in history.delivered:
        by_epoch.setdefault(epoch, Counter())[index] += 1
    last = max(by_epoch)
    for epoch, found in by_epoch.items():
        total = found + history.visited.get(epoch, Counter())
        if not history.removed:
            assert max(total.values()) == 1, (seed, epoch)
        if epoch < last:
            end = end_of_epochs(tuple(history.lineage), epoch + 1, history.order.length)
            assert end == max(n for n, one in enumerate(history.delivered) if one[0] == epoch) + 1
            order = [
                order
                for segment, order in zip(history.lineage, history.orders, strict=True)
                if (segment.epoch, segment.offset) <= (epoch, 0)
            ][-1]
            assert total.total() == order.length, (seed, epoch)
            assert total.keys() >= set(range(order.count)) - set(history.removed), (seed, epoch)


def check_inverse(history: History, seed: int) -> None:
    epochs = history.delivered[-1][0] + 1
    for index in history.rng.sample(range(history.order.count), min(5, history.order.count)):
        expected = [
            (epoch, position)
            for position, (epoch, found) in enumerate(history.delivered)
            if found == index
        ]
        found = [*chain.from_iterable(history.run.visits_of(index, epochs))]
        assert [one for one in found if one[1] < len(history.delivered)] == expected, seed


def test_positions_of_a_plain_order_are_the_inverse_of_its_slots() -> None:
    order = SampleOrder(100_000, 3, "global", removed=Removed(np.arange(0, 600, 2)))
    run = as_run(order.without(np.array([5, 9])))
    slots = run.slots(0, 2 * order.count)
    assert not np.isin(slots.index, [5, 9, *range(0, 600, 2)]).any()
    for index in (0, 1, 5, 9, 77, 99_999):
        expected = np.flatnonzero(slots.index == index).tolist()
        assert [
            position for _, position in [*chain.from_iterable(run.visits_of(index, 2))]
        ] == expected


@pytest.mark.parametrize("mode", ["global", "window", "none", "stable"])
def test_offsets_are_the_inverse_of_samples_for_all_of_100_000(mode: Any) -> None:
    order = SampleOrder(100_000, 3, mode)
    everything = np.arange(order.count)
    offsets = order.offsets(7, everything)
    assert np.array_equal(order.samples(7, offsets), everything)


def test_bad_samples_of_an_old_segment_have_its_substitutes() -> None:
    """Their slots stay as they were when the segment was the run's last one."""
    old, new = SampleOrder(50, 1, "global"), SampleOrder(90, 1, "global")
    bad = np.array([3, 30])
    named = partial(
        Segment, pipeline="p", fingerprint="f", seed=1, batch_size=5, world_size=1, shuffle="global"
    )
    first = begin(old, partial(named, 0, sample_count=50))
    part = Part(first, old, None)
    second = extend(part, 100, new, partial(named, 20, sample_count=90))
    before = RunOrder((first,), [old]).without(bad)
    after = RunOrder((first, second), [old, new]).without(bad)
    assert np.array_equal(before.slots(0, 100).index, after.slots(0, 100).index)
    assert not np.isin(after.slots(0, 300).index, bad).any()
    assert (after.at(99).count, after.at(100).count) == (50, 90)


@pytest.mark.parametrize("mode", ["none", "global", "window", "stable"])
def test_removed_samples_have_no_place_where_epochs_shrink(mode: Any) -> None:
    gone = np.array([2, 5, 19])
    order = SampleOrder(20, 3, mode, 4, 8, Removed(gone, shrinks=True))
    for epoch in range(3):
        assert order.offsets(epoch, gone).tolist() == [-1] * 3


def test_an_epoch_goes_on_in_its_order_with_substitutes() -> None:
    made = partial(Segment, 0, pipeline="p", fingerprint="f", seed=3, batch_size=1, world_size=1)
    make = partial(made, sample_count=20, shuffle="global")
    before = SampleOrder(20, 3, "global")
    part = Part(begin(before, make), before, None)
    plain = as_run(before).slots(0, 20).index
    for shrinks in (False, True):
        after = replace(before, removed=Removed(plain[[9, 15]], shrinks=shrinks))
        run = RunOrder((part.segment, extend(part, 7, after, make)), [before, after])
        slots = run.slots(0, 20)
        others = np.setdiff1d(np.arange(20), [9, 15])
        assert np.array_equal(slots.index[others], plain[others])
        assert not np.isin(slots.index[[9, 15]], plain[[9, 15]]).any()
        for sample in range(20):
            expected = np.flatnonzero(slots.index == sample).tolist()
            assert [
                position for _, position in [*chain.from_iterable(run.visits_of(sample, 1))]
            ] == expected


def test_segments_that_go_back_or_lose_samples_are_refused() -> None:
    made = partial(Segment, 0, pipeline="p", fingerprint="f", seed=3, batch_size=1, world_size=1)
    make = partial(made, sample_count=20, shuffle="global")
    order = SampleOrder(20, 3, "global")
    part = Part(begin(order, make), order, None)
    part = Part(extend(part, 7, order, make), order, part)
    with pytest.raises(ValueError, match="position 6 lies before the last segment, 7"):
        extend(part, 6, order, make)
    with pytest.raises(ValueError, match="it has 19 samples, fewer than 20 before"):
        extend(part, 7, replace(order, count=19), make)
    gone = replace(order, removed=Removed(np.array([2])))
    part = Part(part.segment, gone, part)
    with pytest.raises(ValueError, match="samples that were removed are there again"):
        extend(part, 7, order, make)
    first, second = (
        begin(order, make),
        extend(Part(begin(order, make), order, None), 7, order, make),
    )
    assert RunOrder((first, second), [order] * 2).count == 20
    again = replace(second, offset=5, epoch_end=22)
    with pytest.raises(ValueError, match="does not continue the one before"):
        RunOrder((first, again), [order] * 2)
