"""Whether a stream was delivered exactly: every batch that came in, counted. No network.

    counts = Counts(feed.spec, epochs=2)
    for batch in batches:              # of all ranks, in any order
        counts.add(batch)
    assert counts.outcome().exact

Two things are counted: the positions that were delivered, and the sample ids of each epoch. A
sample that a server put twice where it put another one not at all shows in the ids, a batch that
never came, or came twice, in the positions too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from infeed.batch import Batch
from infeed.outcome import EpochOutcome, Outcome
from infeed.sightings import EXAMPLES, Sightings
from infeed.spans import Span, Spans
from infeed.spec import Array, PipelineSpec


class Counts:
    """Takes in batches from position 0 on, of all ranks, in any order. Not thread-safe.

    An epoch that has come whole is kept in little memory; until then it takes 9 bytes a sample.
    """

    def __init__(
        self, spec: PipelineSpec, epochs: int | None = None, bad_samples: Collection[int] = ()
    ) -> None:
        """`bad_samples` are known to be bad, so that `on_error: substitute` replaces them."""
        self._batched = bool(spec.batch_stride)
        # Workers give their batches in any order, the one that is not full among the others.
        self._mixed = spec.engine == "tf_data_service"
        # A data set of batches counts those, and how many samples they hold nobody knows.
        self._samples = None if self._batched else spec.sample_count
        self._per_epoch = spec.sample_count
        self._mask = spec.on_error == "mask"
        self._masks = self._mask and self._samples is not None
        self._bad = np.array(sorted(bad_samples if spec.on_error == "substitute" else ()), np.int64)
        self._expected_epochs = epochs
        self._sightings: dict[int, Sightings] = {}
        self._masked: dict[int, int] = {}
        self._empty: dict[int, int] = {}
        self._hollow = Spans()
        self._begins: dict[int, int] = {}
        self._open: set[int] = set()
        self._positions = Spans()
        self._redelivered = 0
        self._again: list[Span] = []

    @property
    def total(self) -> int | None:
        """The positions of all epochs; None when endless or unknown."""
        if self._per_epoch is None or self._expected_epochs is None:
            return None
        return self._per_epoch * self._expected_epochs

    @property
    def end(self) -> int:
        """One more than the largest position that was delivered."""
        return self._positions.end

    def add(self, batch: Batch) -> None:
        """Counts the slots of a batch."""
        filled = np.flatnonzero(batch.mask)
        if self._mixed:
            slots = np.arange(batch.start, batch.start + batch.slots)
            positions = slots[filled]
            answered = self._note_empty(batch, slots, len(slots) - len(filled))
        elif self._batched:
            positions = np.full(len(filled), batch.start, np.int64)
            answered = positions[:1]
        else:
            slots = np.arange(batch.start, batch.start + batch.slots)
            positions = slots[filled]
            answered = slots if self._masks else positions
            if self._masks and self.total is not None:
                answered = answered[answered < self.total]
        ids = batch.sample_ids[filled]
        epochs = self._epochs(batch, ids, positions)
        for epoch in np.unique(epochs).tolist():
            mine = epochs == epoch
            self._of(epoch).add(ids[mine], positions[mine])
        if self._masks:
            self._note_masked(np.setdiff1d(answered, positions, assume_unique=True))
        for begin, end in _runs(answered):
            self._deliver(begin, end)
        self._rest()

    def outcome(self, end: int | None = None) -> Outcome:
        """What has come so far of the positions [0, end).

        `end` is where the walk ended: that of the last epoch if it is not given, or of what came
        where nobody knows that.
        """
        if end is None:
            end = self.end if self.total is None else self.total
        epochs = set(range(self._expected_epochs or 0)) | self._sightings.keys()
        missing = [gap for span in self._positions.gaps(0, end) for gap in self._hollow.gaps(*span)]
        return Outcome(
            end=end,
            epochs=tuple(self._epoch_outcome(epoch, end) for epoch in sorted(epochs)),
            undelivered=sum(there - here for here, there in missing),
            redelivered=self._redelivered,
            beyond=sum(
                there - here for here, there in self._positions.within(end, max(end, self.end))
            ),
            gaps=tuple(missing[:EXAMPLES]),
            again=tuple(self._again),
        )

    def _epochs(self, batch: Batch, ids: Array, positions: Array) -> Array:
        """The epoch of each filled slot, int64."""
        if self._per_epoch is not None:
            return positions // self._per_epoch
        if self._mixed:
            return np.full(len(ids), batch.epoch, np.int64)
        # Of unknown length are only data sets that are read from the front: their ids count up
        # from 0 in each epoch. One that consists of batches ends each epoch with a batch.
        begins = ids == 0
        epochs = np.full(len(ids), batch.epoch, np.int64)
        if not self._batched:
            epochs += np.cumsum(begins) - begins[:1].sum()
        for epoch, position in zip(
            epochs[begins].tolist(), positions[begins].tolist(), strict=True
        ):
            self._begins.setdefault(epoch, position)
        return epochs

    def _of(self, epoch: int) -> Sightings:
        if epoch not in self._sightings:
            self._sightings[epoch] = Sightings(self._samples)
        self._open.add(epoch)
        return self._sightings[epoch]

    def _note_empty(self, batch: Batch, slots: Array, empty: int) -> Array:
        """Of a batch that came in no order: the positions that it answers.

        One without a sample can be of bad ones only, or lie behind the end: the end tells.
        """
        self._empty[batch.epoch] = self._empty.get(batch.epoch, 0) + empty
        if empty < len(slots):
            return slots
        self._hollow.add(batch.start, batch.start + len(slots))
        return slots[:0]

    def _note_masked(self, positions: Array) -> None:
        for position in positions.tolist():
            if not any(self._positions.within(position, position + 1)):
                epoch = position // (self._per_epoch or 1)
                self._masked[epoch] = self._masked.get(epoch, 0) + 1
                self._of(epoch)

    def _deliver(self, begin: int, end: int) -> None:
        for here, there in self._positions.within(begin, end):
            self._redelivered += there - here
            if len(self._again) < EXAMPLES:
                self._again.append((here, there))
        self._positions.add(begin, end)

    def _rest(self) -> None:
        """Lets the epochs rest that have come whole."""
        for epoch in list(self._open):
            end = self._end_of(epoch)
            if end is not None and self._positions.frontier >= end:
                self._sightings[epoch].rest()
                self._open.remove(epoch)

    def _end_of(self, epoch: int) -> int | None:
        if self._per_epoch is not None:
            return (epoch + 1) * self._per_epoch
        return self._begins.get(epoch + 1)

    def _epoch_outcome(self, epoch: int, end: int) -> EpochOutcome:
        seen = self._sightings.get(epoch) or Sightings(self._samples)
        never, more = seen.never(), seen.more()
        left_out = 0
        if self._samples is not None:
            left_out = min(self._samples, max(0, (epoch + 1) * self._samples - end))
        masked = self._masked.get(epoch, 0)
        if self._mixed and self._mask:
            # Those that end the data are empty too, and nobody knows which.
            masked = min(len(never), self._empty.get(epoch, 0))
        bad = np.isin(never, self._bad)
        substituted = min(int(bad.sum()), seen.surplus)
        lost = max(0, len(never) - left_out - masked - substituted)
        return EpochOutcome(
            epoch=epoch,
            samples=seen.samples,
            once=seen.samples - len(never) - len(more),
            more=len(more),
            never=len(never),
            left_out=left_out,
            masked=masked,
            substituted=substituted,
            lost=lost,
            surplus=seen.surplus,
            strangers=seen.strangers,
            unseen=tuple(never[~bad][:EXAMPLES].tolist()),
            repeats=tuple(seen.repeats),
            unknown=tuple(seen.unknown),
        )


def _runs(positions: Array) -> Iterator[Span]:
    """The spans that ascending positions consist of."""
    if not len(positions):
        return
    breaks = np.flatnonzero(np.diff(positions) > 1)
    begins = positions[np.concatenate([[0], breaks + 1])]
    ends = positions[np.concatenate([breaks, [len(positions) - 1]])] + 1
    yield from zip(begins.tolist(), ends.tolist(), strict=True)


__all__ = ["Counts"]
