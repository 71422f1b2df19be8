"""Counter of delivered batches, which decides whether a stream was exact. It needs no network.

    counter = DeliveryCounter(feed.spec, epochs=2)
    for batch in batches:              # of all ranks, in any order
        counter.add(batch)
    assert counter.outcome().exact

It counts the delivered positions, and the sample ids of each epoch. A wrong sample shows in the
ids; a lost or repeated batch shows in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np

from infeed.batch import Batch
from infeed.shared.spec import Array, PipelineSpec
from infeed.shared.spec.segment import Lineage, end_of_epochs
from infeed_tools.audit.outcome import (
    MAX_EXAMPLES,
    AuditTotals,
    EpochTotals,
    Interval,
    PartTotals,
    SampleAt,
)


class _Times:
    """How often each number from 0 on occurred, up to 2, in a byte each."""

    def __init__(self, limit: int = 0) -> None:
        self._times = np.zeros(limit, np.uint8)

    def below(self, limit: int) -> Array:
        """Returns the counts of all numbers below a limit, and of larger ones that occurred."""
        if limit > len(self._times):
            grown = np.zeros(max(limit, 2 * len(self._times)), np.uint8)
            grown[: len(self._times)] = self._times
            self._times = grown
        return self._times

    def add(self, numbers: Array) -> Array:
        """Adds numbers; returns for each whether it occurred before."""
        times = self.below(int(numbers.max(initial=-1)) + 1)
        found, first, counts = np.unique(numbers, return_index=True, return_counts=True)
        is_again = np.ones(len(numbers), bool)
        is_again[first] = times[found] > 0
        times[found] = np.minimum(times[found] + counts, 2)
        return is_again


class _Epoch:
    """The slots of one epoch."""

    def __init__(self, samples: int) -> None:
        self.ids = _Times(samples)
        self.known = self.strangers = self.masked = 0
        """Slots with a sample of the pipeline, with an unknown id, and with a masked bad sample."""
        self.repeats: list[SampleAt] = []
        self.unknown: list[SampleAt] = []

    def add(self, ids: Array, positions: Array, samples: int | None) -> None:
        """Counts filled slots."""
        is_known = ids < samples if samples is not None else np.ones(len(ids), bool)
        self.known += int(np.count_nonzero(is_known))
        self.strangers += int(np.count_nonzero(~is_known))
        is_again = np.zeros(len(ids), bool)
        is_again[is_known] = self.ids.add(ids[is_known])
        for examples, where in ((self.repeats, is_again), (self.unknown, ~is_known)):
            shown = np.flatnonzero(where)[: MAX_EXAMPLES - len(examples)]
            examples.extend(map(SampleAt, ids[shown].tolist(), positions[shown].tolist()))


class _EpochPositions:
    """The positions of each epoch: one per sample, except where a run skips steps."""

    def __init__(self, lineage: Lineage, count: int) -> None:
        first = lineage[-1].epoch + 1 if lineage else 0
        self._first, self._count = first, max(1, count)
        begins = [end_of_epochs(lineage, epoch, count) for epoch in range(first + 1)]
        self._begins = np.array(begins, np.int64)
        """First positions of the epochs up to the first that is as long as all later ones."""

    def epochs_of(self, positions: Array) -> Array:
        later = (positions - self._begins[-1]) // self._count + self._first
        earlier = np.searchsorted(self._begins, positions, side="right") - 1
        return np.where(positions >= self._begins[-1], later, earlier)

    def before(self, end: int, epoch: int) -> int:
        """Returns the number of an epoch's positions before `end`."""
        begin, next_begin = self._begin(epoch), self._begin(epoch + 1)
        return max(0, min(end, next_begin) - begin)

    def _begin(self, epoch: int) -> int:
        later = max(0, epoch - self._first)
        return int(self._begins[epoch - later]) + later * self._count


class DeliveryCounter:
    """Counts the batches of all ranks from position 0 on, in any order.

    Takes 2 bytes per slot if the number of samples is known. Not thread-safe.
    """

    def __init__(
        self, spec: PipelineSpec, epochs: int | None = None, bad_samples: Collection[int] = ()
    ) -> None:
        """`epochs` is the number that should be delivered, None if the stream is endless.

        `bad_samples` are the ids that `on_error: substitute` is known to replace.
        """
        is_batched = bool(spec.batch_stride)
        self._bad = sorted(bad_samples if spec.on_error == "substitute" else ())
        # If elements are batches, positions count batches, and the number of samples is unknown.
        self._parts = spec.parts
        self._samples = sum(spec.parts.values()) or (None if is_batched else spec.sample_count)
        self._counts = np.zeros(sum(spec.parts.values()), np.int64)
        """How often each sample of a mixture was delivered."""
        self._removed = self._substitutes = 0
        """Samples removed from each epoch, and those whose slots got other samples."""
        for last in spec.lineage[-1:]:
            self._samples = self._samples if spec.parts else last.sample_count
            self._removed, self._substitutes = last.removed, last.removed * (not last.shrinks)
        self._epoch_positions = None
        if spec.sample_count is not None:
            self._epoch_positions = _EpochPositions(spec.lineage, spec.sample_count)
        # Workers deliver batches in any order: a partly filled one may precede others.
        self._unordered = spec.is_remote
        self._elements_are_batches = is_batched and not self._unordered
        self._masks = spec.on_error == "mask"
        self.total: int | None = None
        """The positions of all epochs; None if endless or unknown."""
        if epochs is not None and spec.sample_count is not None:
            self.total = end_of_epochs(spec.lineage, epochs, spec.sample_count)
        self.batches = 0
        """The number of batches, also without samples."""
        self.end = 0
        """One more than the largest delivered position."""
        self._delivered = 0
        self._positions = _Times(self.total or 0)
        self._excused = _Times()
        """Positions of batches without samples, whose absence is no error with workers."""
        self._epochs: dict[int, _Epoch] = defaultdict(lambda: _Epoch(self._samples or 0))
        self._epochs.update({epoch: _Epoch(self._samples or 0) for epoch in range(epochs or 0)})

    def add(self, batch: Batch) -> None:
        self.add_batches(
            np.array([batch.start]), np.array([batch.epoch]), batch.sample_ids[np.newaxis]
        )

    def add_batches(self, starts: Array, epochs: Array, sample_ids: Array) -> None:
        """Adds batches with their first positions, their epochs and [batch, slot] sample ids.

        The id of an empty slot is -1.
        """
        if not sample_ids.size:
            return
        self.batches += len(starts)
        slots, filled = np.arange(sample_ids.shape[1]), sample_ids >= 0
        positions = starts[:, None] + slots * (not self._elements_are_batches)
        delivered = self._is_delivered(positions, filled)
        self._delivered += int(np.count_nonzero(delivered))
        self.end = max(self.end, int(positions[delivered].max(initial=-1)) + 1)
        is_again = np.zeros(filled.shape, bool)
        is_again[delivered] = self._positions.add(positions[delivered])
        if self._unordered:
            is_again[~delivered] = self._excused.add(positions[~delivered])
        masked = ~filled & ~is_again & (delivered | self._unordered) & self._masks
        of_slots = self._epochs_of(positions, epochs, sample_ids)
        for epoch in np.unique(of_slots[delivered | filled | masked]).tolist():
            state, inside = self._epochs[epoch], of_slots == epoch
            state.masked += int(np.count_nonzero(masked & inside))
            inside &= filled
            state.add(sample_ids[inside], positions[inside], self._samples)
        if self._parts:
            known = sample_ids[filled & (sample_ids < len(self._counts))]
            self._counts += np.bincount(known, minlength=len(self._counts))

    def outcome(self, end: int | None = None) -> AuditTotals:
        """Returns the totals over the positions [0, end).

        `end` is where the ranks stopped. Default: the end of the last epoch if known, else the end
        of the delivered positions.
        """
        if end is None:
            end = self.end if self.total is None else self.total
        times = self._positions.below(end)
        missing = times[:end] == 0
        if self._unordered:
            missing &= self._excused.below(end)[:end] == 0
        return AuditTotals(
            end=end,
            epochs=tuple(self._epoch_totals(epoch, end) for epoch in sorted(self._epochs)),
            undelivered=int(np.count_nonzero(missing)),
            redelivered=self._delivered - int(np.count_nonzero(times)),
            beyond=int(np.count_nonzero(times[end:])),
            gaps=_intervals(missing),
            again=_intervals(times > 1),
            parts=tuple(self._part_totals()),
        )

    def _part_totals(self) -> Iterator[PartTotals]:
        """Yields the totals of the parts of a mixture."""
        repeats = any(epoch.repeats for epoch in self._epochs.values())
        # A substitute is delivered in addition to its own turn.
        is_even = not (self._substitutes or self._bad or self._masks)
        ends = np.cumsum([*self._parts.values()])[:-1]
        for name, counts in zip(self._parts, np.split(self._counts, ends), strict=False):
            least, most = int(counts.min()), int(counts.max())
            exact = most - least <= 1 or not repeats or not is_even
            yield PartTotals(name, len(counts), int(counts.sum()), least, most, exact)

    def _is_delivered(self, positions: Array, filled: Array) -> Array:
        """Returns whether each slot delivers its position."""
        if self._unordered or self._elements_are_batches:
            # A batch without samples delivers nothing: either all its samples are bad, or it lies
            # after the end of the data, which is not known yet.
            delivered = np.repeat(filled.any(axis=1, keepdims=True), filled.shape[1], axis=1)
            delivered[:, 1:] &= self._unordered
            return delivered
        if self._masks and self._samples is not None:
            # Empty slots before the end are bad samples, which count as delivered.
            return filled | (positions < (self.total or np.inf))
        return filled

    def _epochs_of(self, positions: Array, epochs: Array, sample_ids: Array) -> Array:
        if self._epoch_positions is not None:
            return self._epoch_positions.epochs_of(positions)
        of_slots = np.repeat(epochs[:, None], sample_ids.shape[1], axis=1)
        if not (self._unordered or self._elements_are_batches):
            # Only a dataset read sequentially has an unknown length; its ids count up from 0 in
            # each epoch.
            of_slots[:, 1:] += np.cumsum(sample_ids[:, 1:] == 0, axis=1)
        return of_slots

    def _epoch_totals(self, epoch: int, end: int) -> EpochTotals:
        state, samples = self._epochs[epoch], self._samples
        left_out = removed = 0
        if samples is None or self._epoch_positions is None:
            times = np.trim_zeros(state.ids.below(0), "b")
        else:
            times = state.ids.below(samples)[:samples]
            removed = self._removed - self._substitutes
            left_out = samples - removed - self._epoch_positions.before(end, epoch)
            left_out *= not self._parts
        distinct, more = int(np.count_nonzero(times)), int(np.count_nonzero(times > 1))
        missing, surplus = np.flatnonzero(times == 0), state.known - distinct
        # Workers' slots after the end of the data are empty too, and look the same.
        masked = min(state.masked, len(missing)) if self._unordered else state.masked
        is_bad = np.isin(missing, self._bad)
        substituted = min(int(is_bad.sum()) + self._substitutes, surplus)
        lost = len(missing) - removed - left_out - masked - substituted
        return EpochTotals(
            epoch=epoch,
            samples=len(times),
            once=distinct - more,
            more=more,
            never=len(missing),
            left_out=left_out,
            masked=masked,
            substituted=substituted,
            lost=0 if self._parts else max(0, lost),
            surplus=surplus,
            strangers=state.strangers,
            unseen=tuple(missing[~is_bad][:MAX_EXAMPLES].tolist()),
            repeats=tuple(state.repeats),
            unknown=tuple(state.unknown),
            by_part=bool(self._parts),
        )


def _intervals(flags: Array) -> tuple[Interval, ...]:
    """Returns the first intervals of indices with set flags."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    shown = edges[: 2 * MAX_EXAMPLES].tolist()
    return tuple(zip(shown[::2], shown[1::2], strict=True))
