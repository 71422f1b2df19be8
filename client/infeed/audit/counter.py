"""Counter of delivered batches, which decides whether a stream was exact. It needs no network.

    counter = DeliveryCounter(feed.spec, epochs=2)
    for batch in batches:              # of all ranks, in any order
        counter.add(batch)
    assert counter.outcome().exact

It counts the delivered positions, and the sample ids of each epoch. A sample in place of another
shows in the ids; a lost or repeated batch shows in both.
"""

from __future__ import annotations

from collections.abc import Collection

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


class DeliveryCounter:
    """Keeps the slots of all ranks from position 0 on, in any order, and counts them at the end.

    Takes 32 bytes for each slot. Not thread-safe.
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
        self._expected_epochs = epochs
        self._slots: list[Array] = [np.empty((4, 0), np.int64)]
        """Positions, epochs, sample ids, and whether the slots deliver their positions."""
        self.end = 0
        """One more than the largest delivered position."""

    @property
    def total(self) -> int | None:
        """The positions of all epochs; None if endless or unknown."""
        if self._epoch_positions is None or self._expected_epochs is None:
            return None
        return self._epoch_positions * self._expected_epochs

    def add(self, batch: Batch) -> None:
        """Adds the slots of a batch."""
        self.add_batches(
            np.array([batch.start]), np.array([batch.epoch]), batch.sample_ids[np.newaxis]
        )

    def add_batches(self, starts: Array, epochs: Array, sample_ids: Array) -> None:
        """Adds batches with their first positions, their epochs and [batch, slot] sample ids.

        The id of an empty slot is -1.
        """
        if not sample_ids.size:
            return
        slots = np.arange(sample_ids.shape[1])
        positions = starts[:, np.newaxis] + slots * (not self._elements_are_batches)
        filled = sample_ids >= 0
        has_samples = np.broadcast_to(filled.any(axis=1, keepdims=True), filled.shape)
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
        self.end = max(self.end, int(positions[delivered].max(initial=-1)) + 1)
        of_epochs = self._epochs(epochs, sample_ids, positions)
        rows = np.stack([positions, of_epochs, sample_ids, delivered])
        self._slots.append(rows.reshape(4, -1))

    def outcome(self, end: int | None = None) -> AuditTotals:
        """Returns the totals over the positions [0, end).

        `end` is where the ranks stopped. Default: the end of the last epoch if that is known,
        else the end of what was delivered.
        """
        if end is None:
            end = self.end if self.total is None else self.total
        self._slots = [np.concatenate(self._slots, axis=1)]
        positions, epochs, ids, flags = self._slots[0]
        delivered = flags > 0
        found, times = np.unique(positions[delivered], return_counts=True)
        missing = np.setdiff1d(np.arange(end), found, assume_unique=True)
        if self._unordered:  # batches without samples need not be delivered
            missing = np.setdiff1d(missing, positions[~delivered])
        numbers = set(range(self._expected_epochs or 0))
        numbers |= set(epochs[delivered | (ids >= 0)].tolist())
        return AuditTotals(
            end=end,
            epochs=tuple(self._epoch_totals(epoch, end) for epoch in sorted(numbers)),
            undelivered=len(missing),
            redelivered=int((times - 1).sum()),
            beyond=int(np.count_nonzero(found >= end)),
            gaps=_intervals(missing),
            again=_intervals(found[times > 1]),
        )

    def _epochs(self, epochs: Array, sample_ids: Array, positions: Array) -> Array:
        """Returns the epoch of each slot, int64."""
        if self._epoch_positions is not None:
            return positions // self._epoch_positions
        of_first = np.broadcast_to(epochs[:, np.newaxis], sample_ids.shape)
        if self._unordered or self._elements_are_batches:
            return of_first
        # Only a dataset that is read sequentially has an unknown length: its ids count up from 0
        # in each epoch.
        is_start = sample_ids == 0
        epochs_begun: Array = np.cumsum(is_start, axis=1) - is_start[:, :1]
        return of_first + epochs_begun

    def _epoch_totals(self, epoch: int, end: int) -> EpochTotals:
        rows = self._slots[0]
        positions, _, ids, flags = rows[:, rows[1] == epoch]
        masked = 0
        if self._masks:
            masked = len(np.unique(positions[(ids < 0) & (self._unordered | (flags > 0))]))
        positions, ids = positions[ids >= 0], ids[ids >= 0]
        known = np.ones(len(ids), bool)
        if self._sample_count is not None:
            known = ids < self._sample_count
        unknown = np.flatnonzero(~known)
        strangers = [
            UnknownSample(int(ids[slot]), int(positions[slot])) for slot in unknown[:MAX_EXAMPLES]
        ]
        positions, ids = positions[known], ids[known]
        counts = np.bincount(ids, minlength=self._sample_count or 0)
        missing = np.flatnonzero(counts == 0)
        left_out = 0
        if self._sample_count is not None:
            left_out = min(self._sample_count, max(0, (epoch + 1) * self._sample_count - end))
        if self._unordered:  # slots after the end of the data are empty too, and look the same
            masked = min(masked, len(missing))
        surplus = len(ids) - int(np.count_nonzero(counts))
        is_bad = np.isin(missing, self._bad)
        substituted = min(int(is_bad.sum()), surplus)
        return EpochTotals(
            epoch=epoch,
            samples=len(counts),
            once=int(np.count_nonzero(counts == 1)),
            more=int(np.count_nonzero(counts > 1)),
            never=len(missing),
            left_out=left_out,
            masked=masked,
            substituted=substituted,
            lost=max(0, len(missing) - left_out - masked - substituted),
            surplus=surplus,
            strangers=len(unknown),
            unseen=tuple(missing[~is_bad][:MAX_EXAMPLES].tolist()),
            repeats=_repeats(ids, positions),
            unknown=tuple(strangers),
        )


def _repeats(ids: Array, positions: Array) -> tuple[DuplicateSample, ...]:
    """Returns the first slots whose samples other slots had before."""
    samples, first = np.unique(ids, return_index=True)
    again = np.setdiff1d(np.arange(len(ids)), first)[:MAX_EXAMPLES]
    first_of_again = first[np.searchsorted(samples, ids[again])]
    columns = ids[again], positions[first_of_again], positions[again]
    return tuple(map(DuplicateSample, *(column.tolist() for column in columns)))


def _intervals(positions: Array) -> tuple[Interval, ...]:
    """Returns the first intervals that ascending positions form."""
    breaks = np.flatnonzero(np.diff(positions) > 1)[:MAX_EXAMPLES] + 1
    parts = np.split(positions, breaks)[:MAX_EXAMPLES]
    return tuple((int(part[0]), int(part[-1]) + 1) for part in parts if len(part))
