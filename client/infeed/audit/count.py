"""Count of slots, a bounded number at a time: which positions and ids came, and how often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from infeed.audit.outcome import (
    MAX_EXAMPLES,
    AuditTotals,
    DuplicateSample,
    EpochTotals,
    Interval,
    UnknownSample,
)
from infeed.shared.arguments import MAX_INT64
from infeed.shared.spec import Array

Examples = dict[int, list[tuple[int, int]]]
"""The first sample ids and positions of a problem, by epoch."""


class Slots(NamedTuple):
    """Some slots, in the order in which they were added."""

    positions: Array
    epochs: Array
    ids: Array
    delivered: Array
    """Whether a slot delivers its position."""

    def with_ids(self, low: int, high: int = MAX_INT64) -> Array:
        """Returns the indices of the slots with ids from `low` on and below `high`."""
        return np.flatnonzero((self.ids >= low) & (self.ids < high))

    def collect(self, examples: Examples, where: Array) -> None:
        """Adds the slots with these indices, as long as their epochs have few."""
        order = where[np.argsort(self.epochs[where], kind="stable")]
        epochs, begins = np.unique(self.epochs[order], return_index=True)
        for epoch, slots in zip(epochs.tolist(), np.split(order, begins[1:]), strict=False):
            shown = slots[: MAX_EXAMPLES - len(examples[epoch])]
            found = zip(self.ids[shown].tolist(), self.positions[shown].tolist(), strict=True)
            examples[epoch] += found


class _Seen:
    """Which numbers below a limit were seen, and which again: two bytes for each."""

    def __init__(self, limit: int) -> None:
        self.once = np.zeros(limit, bool)
        self.again = np.zeros(limit, bool)

    def add(self, numbers: Array) -> Array:
        """Returns the indices of the numbers that were seen before."""
        found, first = np.unique(numbers, return_index=True)
        is_again = np.ones(len(numbers), bool)
        is_again[first] = self.once[found]
        self.once[found] = True
        self.again[numbers[is_again]] = True
        return np.flatnonzero(is_again)


@dataclass(frozen=True)
class Rules:
    """What a missing sample may be."""

    samples: int | None
    """Samples of an epoch; None if unknown."""
    epochs: int
    """Epochs that are expected."""
    unordered: bool
    """Whether workers deliver the batches, in any order."""
    masks: bool
    """Whether an empty slot can stand for a bad sample."""
    bad: Array
    """Ids of bad samples that others replace."""


class Count:
    """One count of all slots."""

    def __init__(self, rules: Rules, end: int, chunks: Callable[[], Iterable[Slots]]) -> None:
        """Counts the slots that `chunks` yields; `end` is the least number of positions."""
        self._rules, self._chunks = rules, chunks
        last = [[x.max() for x in (part.positions, part.epochs, part.ids)] for part in chunks()]
        position, epoch, sample = np.max([[end - 1, rules.epochs - 1, -1], *last], axis=0).tolist()
        self._samples = sample + 1 if rules.samples is None else rules.samples
        self._limit, epochs = position + 1, epoch + 1
        self._positions, self._ids = _Seen(self._limit), _Seen(epochs * self._samples)
        self._excused = np.zeros(self._limit * rules.unordered, bool)
        """Positions of batches without samples, which workers need not deliver."""
        self._known, self._strangers = np.zeros((2, epochs), np.int64)
        """By epoch: slots with a sample of the pipeline, and with another one."""
        self._exists = np.arange(epochs) < rules.epochs
        self._delivered = 0
        self._repeats: Examples = defaultdict(list)
        self._unknown: Examples = defaultdict(list)
        masked = np.concatenate([np.empty(0, np.int64), *map(self._add, chunks())])
        of_epochs = np.unique(masked) // max(1, self._limit)
        self._masked = np.bincount(of_epochs, minlength=epochs)

    def _add(self, slots: Slots) -> Array:
        """Counts some slots; returns the masked ones, as epoch * limit + position."""
        positions, epochs, ids, delivered = slots
        rules, filled = self._rules, ids >= 0
        self._positions.add(positions[delivered])
        self._delivered += int(np.count_nonzero(delivered))
        if rules.unordered:
            self._excused[positions[~delivered]] = True
        self._exists[epochs[delivered | filled]] = True
        known, strange = slots.with_ids(0, self._samples), slots.with_ids(self._samples)
        self._known += np.bincount(epochs[known], minlength=len(self._known))
        self._strangers += np.bincount(epochs[strange], minlength=len(self._known))
        again = self._ids.add(epochs[known] * self._samples + ids[known])
        slots.collect(self._repeats, known[again])
        slots.collect(self._unknown, strange)
        masked = ~filled & (rules.unordered | delivered) & rules.masks
        keys: Array = epochs[masked] * self._limit + positions[masked]
        return keys

    def totals(self, end: int) -> AuditTotals:
        """Returns the totals over the positions [0, end)."""
        once, again = self._positions.once, self._positions.again
        missing = ~once[:end]
        if self._rules.unordered:
            missing &= ~self._excused[:end]
        firsts = self._first_positions()
        epochs = np.flatnonzero(self._exists).tolist()
        return AuditTotals(
            end=end,
            epochs=tuple(self._epoch_totals(epoch, end, firsts) for epoch in epochs),
            undelivered=int(np.count_nonzero(missing)),
            redelivered=self._delivered - int(np.count_nonzero(once)),
            beyond=int(np.count_nonzero(once[end:])),
            gaps=_intervals(missing),
            again=_intervals(again),
        )

    def _first_positions(self) -> dict[int, int]:
        """Returns where each repeated sample that is listed was first, by epoch * samples + id."""
        samples = self._samples
        listed = [
            epoch * samples + sample
            for epoch, found in self._repeats.items()
            for sample, _ in found
        ]
        firsts: dict[int, int] = {}
        for slots in self._chunks() if listed else ():
            known = slots.with_ids(0, samples)
            keys = slots.epochs[known] * samples + slots.ids[known]
            found, first = np.unique(keys, return_index=True)
            is_listed = np.isin(found, listed)
            positions = slots.positions[known[first[is_listed]]]
            firsts = dict(zip(found[is_listed].tolist(), positions.tolist(), strict=True)) | firsts
        return firsts

    def _epoch_totals(self, epoch: int, end: int, firsts: dict[int, int]) -> EpochTotals:
        rules, begin = self._rules, epoch * self._samples
        part = slice(begin, begin + self._samples)
        seen, more = self._ids.once[part], int(np.count_nonzero(self._ids.again[part]))
        left_out = max(0, part.stop - max(begin, end))
        if rules.samples is None:
            seen, left_out = np.trim_zeros(seen, "b"), 0
        distinct = int(np.count_nonzero(seen))
        missing = np.flatnonzero(~seen)
        masked = int(self._masked[epoch])
        if rules.unordered:  # slots after the end of the data are empty too, and look the same
            masked = min(masked, len(missing))
        surplus = int(self._known[epoch]) - distinct
        is_bad = np.isin(missing, rules.bad)
        substituted = min(int(is_bad.sum()), surplus)
        return EpochTotals(
            epoch=epoch,
            samples=len(seen),
            once=distinct - more,
            more=more,
            never=len(missing),
            left_out=left_out,
            masked=masked,
            substituted=substituted,
            lost=max(0, len(missing) - left_out - masked - substituted),
            surplus=surplus,
            strangers=int(self._strangers[epoch]),
            unseen=tuple(missing[~is_bad][:MAX_EXAMPLES].tolist()),
            repeats=tuple(
                DuplicateSample(sample, firsts[begin + sample], position)
                for sample, position in self._repeats[epoch]
            ),
            unknown=tuple(UnknownSample(*found) for found in self._unknown[epoch]),
        )


def _intervals(flags: Array) -> tuple[Interval, ...]:
    """Returns the first intervals of indices whose flags are set."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    shown = edges[: 2 * MAX_EXAMPLES].tolist()
    return tuple(zip(shown[::2], shown[1::2], strict=True))
