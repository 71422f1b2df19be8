"""Counter of delivered batches, which decides whether a stream was exact. It needs no network.

    counter = DeliveryCounter(feed.spec, epochs=2)
    for batch in batches:              # of all ranks, in any order
        counter.add(batch)
    assert counter.outcome().exact

It counts the delivered positions, and the sample ids of each epoch. A sample in place of another
shows in the ids; a lost or repeated batch shows in both.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator
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
from infeed.batch import Batch
from infeed.shared.spec import Array, PipelineSpec

_CHUNK_SLOTS = 1 << 18
"""Slots that are counted at a time: more would take more memory, and hardly less time."""

Examples = dict[int, list[tuple[int, int]]]
"""The first sample ids and positions of a problem, by epoch."""


class _Slots(NamedTuple):
    """Some slots, in the order in which they were added."""

    positions: Array
    epochs: Array
    ids: Array
    delivered: Array
    """Whether a slot delivers its position."""

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


class DeliveryCounter:
    """Keeps the sample ids of all ranks from position 0 on, in any order, and counts at the end.

    Takes 8 bytes for each slot, 24 for each batch, and up to 6 more for each slot while it counts.
    Not thread-safe.
    """

    def __init__(
        self, spec: PipelineSpec, epochs: int | None = None, bad_samples: Collection[int] = ()
    ) -> None:
        """`epochs` is the number that should be delivered, None if the stream is endless.

        `bad_samples` are the ids that `on_error: substitute` is known to replace.
        """
        # Workers deliver batches in any order; the partly filled one can precede others.
        self._unordered = spec.is_remote
        is_batched = bool(spec.batch_stride)
        self._elements_are_batches = is_batched and not self._unordered
        self._epoch_positions = spec.sample_count
        # Where elements are batches, positions count those; the number of samples is unknown.
        self._sample_count = None if is_batched else spec.sample_count
        self._masks = spec.on_error == "mask"
        self._bad = np.array(sorted(bad_samples if spec.on_error == "substitute" else ()), np.int64)
        self._expected_epochs = epochs or 0
        self.total: int | None = None
        """The positions of all epochs; None if endless or unknown."""
        if epochs is not None and spec.sample_count is not None:
            self.total = spec.sample_count * epochs
        # By batch, and the ids by slot. Python's arrays grow in place.
        self._starts, self._epochs, self._sizes, self._ids = (array("q") for _ in range(4))

    def add(self, batch: Batch) -> None:
        """Adds the slots of a batch."""
        self.add_batches(
            np.array([batch.start]), np.array([batch.epoch]), batch.sample_ids[np.newaxis]
        )

    def add_batches(self, starts: Array, epochs: Array, sample_ids: Array) -> None:
        """Adds batches with their first positions, their epochs and [batch, slot] sample ids.

        The id of an empty slot is -1.
        """
        if sample_ids.size:
            self._starts.extend(starts.tolist())
            self._epochs.extend(epochs.tolist())
            self._sizes.extend([sample_ids.shape[1]] * len(starts))
            self._ids.frombytes(sample_ids.astype(np.int64, copy=False).tobytes())

    @property
    def end(self) -> int:
        """One more than the largest delivered position."""
        ends = (slots.positions[slots.delivered].max(initial=-1) for slots in self._chunks())
        return int(max(ends, default=-1)) + 1

    def outcome(self, end: int | None = None) -> AuditTotals:
        """Returns the totals over the positions [0, end).

        `end` is where the ranks stopped. Default: the end of the last epoch if that is known,
        else the end of what was delivered.
        """
        if end is None:
            end = self.end if self.total is None else self.total
        positions = [slots.positions.max() + 1 for slots in self._chunks()]
        limit = int(max(positions, default=0))
        of_epochs = [slots.epochs.max() + 1 for slots in self._chunks()]
        epochs = int(max([self._expected_epochs, *of_epochs]))
        return _Count(self, max(end, limit), epochs).totals(end)

    def _chunks(self) -> Iterator[_Slots]:
        """Yields all slots, a bounded number at a time."""
        starts, epochs, sizes, ids = map(
            np.asarray, (self._starts, self._epochs, self._sizes, self._ids)
        )
        ends = np.cumsum(sizes)
        batch = 0
        while batch < len(starts):
            begin = ends[batch] - sizes[batch]
            after = max(batch + 1, int(np.searchsorted(ends, begin + _CHUNK_SLOTS)))
            part = slice(batch, after)
            yield self._slots(starts[part], epochs[part], sizes[part], ids[begin : ends[after - 1]])
            batch = after

    def _slots(self, starts: Array, epochs: Array, sizes: Array, ids: Array) -> _Slots:
        firsts = np.cumsum(sizes) - sizes
        slots = np.arange(len(ids)) - np.repeat(firsts, sizes)
        positions = np.repeat(starts, sizes) + slots * (not self._elements_are_batches)
        filled = ids >= 0
        has_samples = np.repeat(np.logical_or.reduceat(filled, firsts), sizes)
        if self._unordered:
            # A batch without any sample delivers nothing: either all of its samples are bad, or it
            # is after the end of the data, which is not known yet.
            delivered = has_samples
        elif self._elements_are_batches:
            delivered = has_samples & (slots == 0)
        elif self._masks and self._sample_count is not None:
            # Empty slots are bad samples, which are delivered; others are after the end.
            delivered = filled | (positions < (self.total or np.inf))
        else:
            delivered = filled
        if self._epoch_positions is not None:
            return _Slots(positions, positions // self._epoch_positions, ids, delivered)
        of_slots = np.repeat(epochs, sizes)
        if not (self._unordered or self._elements_are_batches):
            # Only a dataset that is read sequentially has an unknown length: its ids count up from
            # 0 in each epoch.
            begun = np.cumsum(ids == 0)
            of_slots += begun - np.repeat(begun[firsts], sizes)
        return _Slots(positions, of_slots, ids, delivered)


class _Count:
    """One count of all slots."""

    def __init__(self, counter: DeliveryCounter, limit: int, epochs: int) -> None:
        """`limit` is over all positions."""
        self._counter = counter
        samples = counter._sample_count
        if samples is None:
            samples = int(np.asarray(counter._ids).max(initial=-1)) + 1
        self._samples = samples
        self._positions, self._ids = _Seen(limit), _Seen(epochs * samples)
        self._excused = np.zeros(limit if counter._unordered else 0, bool)
        """Positions of batches without samples, which workers need not deliver."""
        self._slots, self._strangers = np.zeros((2, epochs), np.int64)
        """By epoch: slots with a sample of the pipeline, and with another one."""
        self._exists = np.arange(epochs) < counter._expected_epochs
        self._delivered = 0
        self._repeats: Examples = defaultdict(list)
        self._unknown: Examples = defaultdict(list)
        masked = [self._add(slots) for slots in counter._chunks()]
        found = np.unique(np.concatenate([np.empty(0, np.int64), *masked]))
        self._masked = np.bincount(found // max(1, limit), minlength=epochs)

    def _add(self, slots: _Slots) -> Array:
        """Counts some slots; returns the masked ones, as epoch * limit + position."""
        positions, epochs, ids, delivered = slots
        counter = self._counter
        self._positions.add(positions[delivered])
        self._delivered += int(np.count_nonzero(delivered))
        if counter._unordered:
            self._excused[positions[~delivered]] = True
        self._exists[epochs[delivered | (ids >= 0)]] = True
        known = np.flatnonzero((ids >= 0) & (ids < self._samples))
        again = self._ids.add(epochs[known] * self._samples + ids[known])
        slots.collect(self._repeats, known[again])
        strange = np.flatnonzero(ids >= self._samples)
        slots.collect(self._unknown, strange)
        for counts, where in ((self._slots, known), (self._strangers, strange)):
            counts += np.bincount(epochs[where], minlength=len(counts))
        masked = (ids < 0) & (counter._unordered | delivered) & counter._masks
        return epochs[masked] * len(self._positions.once) + positions[masked]

    def totals(self, end: int) -> AuditTotals:
        once, again = self._positions.once, self._positions.again
        missing = ~once[:end]
        if self._counter._unordered:
            missing &= ~self._excused[:end]
        firsts = self._first_positions()
        return AuditTotals(
            end=end,
            epochs=tuple(
                self._epoch_totals(epoch, end, firsts)
                for epoch in np.flatnonzero(self._exists).tolist()
            ),
            undelivered=int(np.count_nonzero(missing)),
            redelivered=self._delivered - int(np.count_nonzero(once)),
            beyond=int(np.count_nonzero(once[end:])),
            gaps=_intervals(missing),
            again=_intervals(again),
        )

    def _first_positions(self) -> dict[int, int]:
        """Returns where each repeated sample that is listed was first, by epoch * samples + id."""
        wanted = [
            epoch * self._samples + sample
            for epoch, found in self._repeats.items()
            for sample, _ in found
        ]
        firsts: dict[int, int] = {}
        for slots in self._counter._chunks() if wanted else ():
            keys = np.where(slots.ids < 0, -1, slots.epochs * self._samples + slots.ids)
            keys[slots.ids >= self._samples] = -1
            found, index = np.unique(keys, return_index=True)
            is_wanted = np.isin(found, wanted)
            where = slots.positions[index[is_wanted]].tolist()
            firsts = dict(zip(found[is_wanted].tolist(), where, strict=True)) | firsts
        return firsts

    def _epoch_totals(self, epoch: int, end: int, firsts: dict[int, int]) -> EpochTotals:
        counter, begin = self._counter, epoch * self._samples
        seen = self._ids.once[begin : begin + self._samples]
        more = int(np.count_nonzero(self._ids.again[begin : begin + self._samples]))
        left_out = 0
        if counter._sample_count is None:
            seen = seen[: int(np.flatnonzero(seen)[-1]) + 1 if seen.any() else 0]
        else:
            left_out = min(self._samples, max(0, (epoch + 1) * self._samples - end))
        distinct = int(np.count_nonzero(seen))
        missing = np.flatnonzero(~seen)
        masked = int(self._masked[epoch])
        if counter._unordered:  # slots after the end of the data are empty too, and look the same
            masked = min(masked, len(missing))
        surplus = int(self._slots[epoch]) - distinct
        is_bad = np.isin(missing, counter._bad)
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
