"""Counter of delivered batches, which decides whether a stream was exact. It needs no network.

    counter = DeliveryCounter(feed.spec, epochs=2)
    for batch in batches:              # of all ranks, in any order
        counter.add(batch)
    assert counter.outcome().exact

It counts the delivered positions, and the sample ids of each epoch. A sample in place of another
shows in the ids; a lost or repeated batch shows in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np

from infeed.audit.coverage import MAX_EXAMPLES, Interval, IntervalSet, SampleCounts
from infeed.audit.outcome import AuditTotals, EpochTotals
from infeed.batch import Batch
from infeed.shared.spec import Array, PipelineSpec


class DeliveryCounter:
    """Counts the batches of all ranks from position 0 on, in any order. Not thread-safe.

    An incomplete epoch takes 9 bytes a sample, a complete one almost nothing.
    """

    def __init__(
        self, spec: PipelineSpec, epochs: int | None = None, bad_samples: Collection[int] = ()
    ) -> None:
        """`epochs` is the number that should be delivered, None if the stream is endless.

        `bad_samples` are the ids that `on_error: substitute` is known to replace.
        """
        self._elements_are_batches = bool(spec.batch_stride)
        # Workers deliver batches in any order; the partly filled one can precede others.
        self._unordered = spec.is_remote
        self._epoch_positions = spec.sample_count
        # Where elements are batches, positions count those; the number of samples is unknown.
        self._sample_count = None if self._elements_are_batches else spec.sample_count
        self._masks = spec.on_error == "mask"
        self._masks_known_positions = self._masks and self._sample_count is not None
        self._bad = np.array(sorted(bad_samples if spec.on_error == "substitute" else ()), np.int64)
        self._expected_epochs = epochs
        self._counts: dict[int, SampleCounts] = {}
        self._masked: dict[int, int] = {}
        self._empty_slots: dict[int, int] = {}
        self._empty_batches = IntervalSet()
        self._epoch_starts: dict[int, int] = {}
        """Epoch → the position of its sample 0, where the length of an epoch is unknown."""
        self._incomplete: set[int] = set()
        self._delivered = IntervalSet()
        self._redelivered_count = 0
        self._redelivered: list[Interval] = []

    @property
    def total(self) -> int | None:
        """The positions of all epochs; None if endless or unknown."""
        if self._epoch_positions is None or self._expected_epochs is None:
            return None
        return self._epoch_positions * self._expected_epochs

    @property
    def end(self) -> int:
        """One more than the largest delivered position."""
        return self._delivered.end

    def add(self, batch: Batch) -> None:
        """Counts the slots of a batch."""
        filled = np.flatnonzero(batch.mask)
        if self._elements_are_batches and not self._unordered:
            positions = np.full(len(filled), batch.start, np.int64)
            delivered = positions[:1]
        else:
            slots = np.arange(batch.start, batch.start + batch.slots)
            positions = slots[filled]
            if self._unordered:
                delivered = self._count_empty_slots(batch, slots, len(slots) - len(filled))
            elif self._masks_known_positions:
                delivered = slots if self.total is None else slots[slots < self.total]
            else:
                delivered = positions
        ids = batch.sample_ids[filled]
        epochs = self._epochs(batch, ids, positions)
        for epoch in np.unique(epochs).tolist():
            selected = epochs == epoch
            self._epoch_counts(epoch).add(ids[selected], positions[selected])
        if self._masks_known_positions:
            self._count_masked(np.setdiff1d(delivered, positions, assume_unique=True))
        for begin, end in _intervals(delivered):
            self._count_delivered(begin, end)
        self._compact_complete_epochs()

    def outcome(self, end: int | None = None) -> AuditTotals:
        """Returns the totals over the positions [0, end).

        `end` is where the ranks stopped. Default: the end of the last epoch if that is known,
        else the end of what was delivered.
        """
        if end is None:
            end = self.end if self.total is None else self.total
        epochs = set(range(self._expected_epochs or 0)) | self._counts.keys()
        gaps = [
            gap
            for interval in self._delivered.gaps(0, end)
            for gap in self._empty_batches.gaps(*interval)
        ]
        return AuditTotals(
            end=end,
            epochs=tuple(self._epoch_totals(epoch, end) for epoch in sorted(epochs)),
            undelivered=_length(gaps),
            redelivered=self._redelivered_count,
            beyond=_length(self._delivered.overlaps(end, max(end, self.end))),
            gaps=tuple(gaps[:MAX_EXAMPLES]),
            again=tuple(self._redelivered),
        )

    def _epochs(self, batch: Batch, ids: Array, positions: Array) -> Array:
        """Returns the epoch of each filled slot, int64."""
        if self._epoch_positions is not None:
            return positions // self._epoch_positions
        if self._unordered:
            return np.full(len(ids), batch.epoch, np.int64)
        # Only a dataset that is read sequentially has an unknown length: its ids count up from 0
        # in each epoch. Where its elements are batches, no batch spans two epochs.
        is_start = ids == 0
        epochs = np.full(len(ids), batch.epoch, np.int64)
        if not self._elements_are_batches:
            epochs += np.cumsum(is_start) - is_start[:1].sum()
        for epoch, position in zip(
            epochs[is_start].tolist(), positions[is_start].tolist(), strict=True
        ):
            self._epoch_starts.setdefault(epoch, position)
        return epochs

    def _epoch_counts(self, epoch: int) -> SampleCounts:
        if epoch not in self._counts:
            self._counts[epoch] = SampleCounts(self._sample_count)
        self._incomplete.add(epoch)
        return self._counts[epoch]

    def _count_empty_slots(self, batch: Batch, slots: Array, empty: int) -> Array:
        """Counts the empty slots of an unordered batch; returns the positions that it delivers.

        A batch without any sample delivers none: either all of its samples are bad, or it is
        after the end of the data, which is not known yet.
        """
        self._empty_slots[batch.epoch] = self._empty_slots.get(batch.epoch, 0) + empty
        if empty < len(slots):
            return slots
        self._empty_batches.add(batch.start, batch.start + len(slots))
        return slots[:0]

    def _count_masked(self, positions: Array) -> None:
        for position in positions.tolist():
            if not any(self._delivered.overlaps(position, position + 1)):
                epoch = position // (self._epoch_positions or 1)
                self._masked[epoch] = self._masked.get(epoch, 0) + 1
                self._epoch_counts(epoch)

    def _count_delivered(self, begin: int, end: int) -> None:
        for interval in self._delivered.overlaps(begin, end):
            self._redelivered_count += _length([interval])
            if len(self._redelivered) < MAX_EXAMPLES:
                self._redelivered.append(interval)
        self._delivered.add(begin, end)

    def _compact_complete_epochs(self) -> None:
        for epoch in list(self._incomplete):
            end = self._epoch_end(epoch)
            if end is not None and self._delivered.first_missing >= end:
                self._counts[epoch].compact()
                self._incomplete.remove(epoch)

    def _epoch_end(self, epoch: int) -> int | None:
        if self._epoch_positions is not None:
            return (epoch + 1) * self._epoch_positions
        return self._epoch_starts.get(epoch + 1)

    def _epoch_totals(self, epoch: int, end: int) -> EpochTotals:
        counts = self._counts.get(epoch) or SampleCounts(self._sample_count)
        missing, duplicated = counts.missing_ids(), counts.duplicated_ids()
        left_out = 0
        if self._sample_count is not None:
            left_out = min(self._sample_count, max(0, (epoch + 1) * self._sample_count - end))
        masked = self._masked.get(epoch, 0)
        if self._unordered and self._masks:
            # Slots after the end of the data are empty too, and look the same.
            masked = min(len(missing), self._empty_slots.get(epoch, 0))
        is_bad = np.isin(missing, self._bad)
        substituted = min(int(is_bad.sum()), counts.duplicate_count)
        return EpochTotals(
            epoch=epoch,
            samples=counts.samples,
            once=counts.samples - len(missing) - len(duplicated),
            more=len(duplicated),
            never=len(missing),
            left_out=left_out,
            masked=masked,
            substituted=substituted,
            lost=max(0, len(missing) - left_out - masked - substituted),
            surplus=counts.duplicate_count,
            strangers=counts.unknown_count,
            unseen=tuple(missing[~is_bad][:MAX_EXAMPLES].tolist()),
            repeats=tuple(counts.duplicates),
            unknown=tuple(counts.unknown),
        )


def _length(intervals: Iterable[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def _intervals(positions: Array) -> Iterator[Interval]:
    """Yields the intervals that ascending positions form."""
    if not len(positions):
        return
    breaks = np.flatnonzero(np.diff(positions) > 1)
    begins = positions[np.concatenate([[0], breaks + 1])]
    ends = positions[np.concatenate([breaks, [len(positions) - 1]])] + 1
    yield from zip(begins.tolist(), ends.tolist(), strict=True)
