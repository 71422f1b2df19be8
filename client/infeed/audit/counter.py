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
from collections.abc import Collection, Iterator

import numpy as np

from infeed.audit.count import Count, Rules, Slots
from infeed.audit.outcome import AuditTotals
from infeed.batch import Batch
from infeed.shared.spec import Array, PipelineSpec

_CHUNK_SLOTS = 1 << 18
"""Slots that are counted at a time: more would take more memory, and hardly less time."""


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
        is_batched = bool(spec.batch_stride)
        bad = sorted(bad_samples if spec.on_error == "substitute" else ())
        self._rules = rules = Rules(
            # Where elements are batches, positions count those; the number of samples is unknown.
            samples=None if is_batched else spec.sample_count,
            epochs=epochs or 0,
            # Workers deliver batches in any order; the partly filled one can precede others.
            unordered=spec.is_remote,
            masks=spec.on_error == "mask",
            bad=np.array(bad, np.int64),
        )
        self._elements_are_batches = is_batched and not rules.unordered
        self._epoch_positions = spec.sample_count
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
    def batches(self) -> int:
        """The number of batches, also without samples."""
        return len(self._starts)

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
        return Count(self._rules, end, self._chunks).totals(end)

    def _chunks(self) -> Iterator[Slots]:
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

    def _slots(self, starts: Array, epochs: Array, sizes: Array, ids: Array) -> Slots:
        firsts = np.cumsum(sizes) - sizes
        slots = np.arange(len(ids)) - np.repeat(firsts, sizes)
        positions = np.repeat(starts, sizes) + slots * (not self._elements_are_batches)
        filled = ids >= 0
        has_samples = np.repeat(np.logical_or.reduceat(filled, firsts), sizes)
        if self._rules.unordered:
            # A batch without any sample delivers nothing: either all of its samples are bad, or it
            # is after the end of the data, which is not known yet.
            delivered = has_samples
        elif self._elements_are_batches:
            delivered = has_samples & (slots == 0)
        elif self._rules.masks and self._rules.samples is not None:
            # Empty slots are bad samples, which are delivered; others are after the end.
            delivered = filled | (positions < (self.total or np.inf))
        else:
            delivered = filled
        if self._epoch_positions is not None:
            return Slots(positions, positions // self._epoch_positions, ids, delivered)
        of_slots = np.repeat(epochs, sizes)
        if not (self._rules.unordered or self._elements_are_batches):
            # Only a dataset that is read sequentially has an unknown length: its ids count up from
            # 0 in each epoch.
            begun = np.cumsum(ids == 0)
            of_slots += begun - np.repeat(begun[firsts], sizes)
        return Slots(positions, of_slots, ids, delivered)
