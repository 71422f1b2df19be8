"""Counter of delivered batches, which decides whether a stream was exact. It needs no network.

    counter = DeliveryCounter(feed.spec, epochs=2)
    for batch in batches:              # of all ranks, in any order
        counter.add(batch)
    assert counter.outcome().exact

It counts the delivered positions, and the sample ids of each epoch. A sample in place of another
shows in the ids; a lost or repeated batch shows in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice

import numpy as np

from infeed.audit.coverage import Positions, SampleCounts, intervals
from infeed.audit.outcome import MAX_EXAMPLES, AuditTotals, EpochTotals
from infeed.batch import Batch
from infeed.shared.spec import Array, PipelineSpec


class DeliveryCounter:
    """Counts the batches of all ranks from position 0 on, in any order. Not thread-safe.

    Takes 8 bytes for each sample of each epoch, and one for each position.
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
        self._counts: dict[int, SampleCounts] = {}
        self._masked: Counter[int] = Counter()
        """Bad samples by epoch; of unordered batches, empty slots, which may be after the end."""
        self._delivered = Positions()
        self._excused: list[Array] = []
        """Positions that may have no sample, and need not be delivered."""

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
        self.add_batches(
            np.array([batch.start]), np.array([batch.epoch]), batch.sample_ids[np.newaxis]
        )

    def add_batches(self, starts: Array, epochs: Array, sample_ids: Array) -> None:
        """Counts batches from their first positions, their epochs and [batch, slot] sample ids.

        The id of an empty slot is -1.
        """
        slots = np.arange(sample_ids.shape[1] if sample_ids.ndim == 2 else 0)
        positions = starts[:, np.newaxis] + slots * (not self._elements_are_batches)
        filled = sample_ids >= 0
        of_epochs = self._epochs(epochs, sample_ids, positions)
        if self._unordered:
            delivered = self._add_empty_slots(epochs, filled, positions)
        elif self._elements_are_batches:
            delivered = starts[filled.any(axis=1)]
        else:
            delivered = positions[filled]
        if self._masks and self._sample_count is not None:
            self._add_masked(positions[~filled])
        self._delivered.add(delivered)
        ids, positions, of_epochs = sample_ids[filled], positions[filled], of_epochs[filled]
        for epoch in np.unique(of_epochs).tolist():
            selected = of_epochs == epoch
            self._counts_of(epoch).add(ids[selected], positions[selected])

    def outcome(self, end: int | None = None) -> AuditTotals:
        """Returns the totals over the positions [0, end).

        `end` is where the ranks stopped. Default: the end of the last epoch if that is known,
        else the end of what was delivered.
        """
        if end is None:
            end = self.end if self.total is None else self.total
        epochs = set(range(self._expected_epochs or 0)) | self._counts.keys()
        missing = self._delivered.missing(end)
        if self._excused:
            missing = np.setdiff1d(missing, np.concatenate(self._excused))
        return AuditTotals(
            end=end,
            epochs=tuple(self._epoch_totals(epoch, end) for epoch in sorted(epochs)),
            undelivered=len(missing),
            redelivered=self._delivered.redelivered,
            beyond=self._delivered.count_from(end),
            gaps=tuple(islice(intervals(missing), MAX_EXAMPLES)),
            again=tuple(self._delivered.again),
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

    def _counts_of(self, epoch: int) -> SampleCounts:
        if epoch not in self._counts:
            self._counts[epoch] = SampleCounts(self._sample_count)
        return self._counts[epoch]

    def _add_masked(self, positions: Array) -> None:
        """Counts the empty slots of bad samples, which are delivered; others are after the end."""
        if self.total is not None:
            positions = positions[positions < self.total]
        for epoch in (self._delivered.add(positions) // (self._epoch_positions or 1)).tolist():
            self._masked[epoch] += 1
            self._counts_of(epoch)

    def _add_empty_slots(self, epochs: Array, filled: Array, positions: Array) -> Array:
        """Counts the empty slots of unordered batches; returns the positions that they deliver.

        A batch without any sample delivers none: either all of its samples are bad, or it is
        after the end of the data, which is not known yet.
        """
        for epoch, empty in zip(epochs.tolist(), (~filled).sum(axis=1).tolist(), strict=True):
            self._masked[epoch] += empty * self._masks
        has_samples = filled.any(axis=1)
        self._excused.append(positions[~has_samples].ravel())
        return positions[has_samples].ravel()

    def _epoch_totals(self, epoch: int, end: int) -> EpochTotals:
        counts = self._counts.get(epoch) or SampleCounts(self._sample_count)
        missing = counts.missing_ids()
        left_out = 0
        if self._sample_count is not None:
            left_out = min(self._sample_count, max(0, (epoch + 1) * self._sample_count - end))
        masked = self._masked[epoch]
        if self._unordered:  # slots after the end of the data are empty too, and look the same
            masked = min(masked, len(missing))
        is_bad = np.isin(missing, self._bad)
        substituted = min(int(is_bad.sum()), counts.duplicate_count)
        return EpochTotals(
            epoch=epoch,
            samples=counts.samples,
            once=counts.samples - len(missing) - len(counts.repeated),
            more=len(counts.repeated),
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
