"""The order of a run of several segments: what each position of the sample stream has.

The epoch in which a segment begins goes on in the order of the segment before, and the epochs
behind it have the segment's own, so that no sample is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from infeed.shared.spec.segment import Lineage, Segment
from infeed_server.order.permutation import Positions
from infeed_server.order.sample_order import MAX_SEED, SampleOrder, Slots, by_epoch

_ZERO = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Part:
    """A segment with its order. `parent` is the one before."""

    segment: Segment
    order: SampleOrder
    parent: Part | None

    def locate(self, positions: Positions) -> tuple[Positions, Positions]:
        """Returns epochs and offsets of positions from the segment's start on."""
        segment = self.segment
        in_first = positions < segment.epoch_end
        epochs, offsets = np.divmod(positions - segment.epoch_end, self.order.length)
        first = positions - segment.start + segment.offset
        return np.where(in_first, segment.epoch, epochs + segment.epoch + 1), np.where(
            in_first, first, offsets
        )

    def position(self, epoch: int, offsets: Positions) -> Positions:
        """Returns the positions of offsets in an epoch: the inverse of `locate`."""
        segment = self.segment
        if epoch == segment.epoch:
            return offsets - segment.offset + segment.start
        return segment.epoch_end + (epoch - segment.epoch - 1) * self.order.length + offsets

    def source(self, epoch: int) -> SampleOrder:
        goes_on = epoch == self.segment.epoch and self.segment.offset > 0
        return self.parent.source(epoch) if goes_on and self.parent else self.order

    def samples(self, epoch: int, offsets: Positions) -> Positions:
        return self.source(epoch).samples(epoch, offsets)

    def offsets(self, epoch: int, index: Positions) -> Positions:
        """Returns the offsets that samples have in an epoch, without samples that it has not."""
        source = self.source(epoch)
        offsets = source.offsets(epoch, index[index < source.count])
        return offsets[offsets >= 0]

    def replaced_by(self, index: int, epoch: int) -> Positions:
        """Returns the samples in whose slots a sample is: itself, and removed ones of which it is
        the substitute."""
        order, removed = self.order, self.order.removed
        replaced = np.union1d(removed.ids, removed.bad)
        own: Positions = np.array([index], np.int64)
        own = own[(own < order.count) & ~removed.contains(own)]
        if not replaced.size or not own.size:
            return own
        drawn = order.with_substitutes(np.full(replaced.size, epoch), replaced.copy()).index
        return np.concatenate([own, replaced[drawn == index]])


class RunOrder:
    """The order of a run with segments: the same interface as `SampleOrder`."""

    def __init__(self, lineage: Lineage, orders: Sequence[SampleOrder]) -> None:
        """Takes an order for each segment. Raises `ValueError` if they do not fit."""
        parts: list[Part] = []
        for segment, order in zip(lineage, orders, strict=True):
            parts.append(Part(segment, order, parts[-1] if parts else None))
            _check(parts[-1])
        self.parts = tuple(parts)
        self._starts = np.array([segment.start for segment in lineage], np.int64)

    @property
    def last(self) -> SampleOrder:
        """The order of the epochs that begin in the last segment."""
        return self.parts[-1].order

    @property
    def seed(self) -> int:
        return self.last.seed

    @property
    def count(self) -> int:
        return self.last.count

    def slots(self, start: int, count: int) -> Slots:
        """Returns the samples at the positions [start, start + count)."""
        places = [*self.between(start, start + count)] or [(self.parts[0], start, start)]
        found = [_slots(*place) for place in places]
        return Slots(
            np.concatenate([slots.index for slots in found]),
            np.concatenate([slots.epoch for slots in found]),
            np.concatenate([slots.key for slots in found]),
        )

    def between(self, first: int, end: int) -> Iterator[tuple[Part, int, int]]:
        """Yields the segments with the positions [first, end), and the first and the end of what
        each has of them."""
        for part, following in zip(self.parts, [*self._starts[1:].tolist(), MAX_SEED], strict=True):
            low, high = max(part.segment.start, first), min(following, end)
            if low < high:
                yield part, low, high

    def keys(self, epoch: Positions, index: Positions) -> np.ndarray:
        return self.last.keys(epoch, index)

    def substitute(self, index: int, key: np.ndarray) -> Slots:
        return self.last.substitute(index, key)

    def at(self, position: int) -> SampleOrder:
        """Returns the order that substitutes are drawn from at a position: of its segment."""
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        return self.parts[number].order

    def without(self, bad: Positions) -> RunOrder:
        """Returns the order with substitutes also for samples that are bad under any key."""
        lineage = tuple(part.segment for part in self.parts)
        return RunOrder(lineage, [part.order.without(bad) for part in self.parts])

    def visits_of(self, index: int, epochs: int) -> Iterator[list[tuple[int, int]]]:
        """Yields by epoch, up to `epochs`, epoch and position of each slot that has a sample: in
        the place of the sample, or of a removed one whose substitute it is."""
        ends = [*self._starts[1:].tolist(), MAX_SEED]
        for part, end in zip(self.parts, ends, strict=True):
            for epoch in range(part.segment.epoch, epochs):
                if epoch > part.segment.epoch and part.position(epoch, _ZERO)[0] >= end:
                    break
                offsets = part.offsets(epoch, part.replaced_by(index, epoch))
                positions = np.sort(part.position(epoch, offsets))
                inside = (positions >= part.segment.start) & (positions < end)
                yield [(epoch, position) for position in positions[inside].tolist()]


def as_run(order: SampleOrder | RunOrder) -> RunOrder:
    """Returns an order as one of a run of a single segment, if it is not one of a run already."""
    if isinstance(order, RunOrder):
        return order
    count, seed = order.count, order.seed
    segment = partial(Segment, 0, pipeline="", fingerprint="", seed=seed, batch_size=1)
    first = begin(order, partial(segment, world_size=1, sample_count=count, shuffle=""))
    return RunOrder((first,), [order])


def begin(order: SampleOrder, segment: Callable[..., Segment]) -> Segment:
    """Returns the first segment of a run. `segment` adds what is not of the order."""
    return segment(start=0, epoch=0, offset=0, epoch_end=order.length)


def extend(
    part: Part, start: int, order: SampleOrder, segment: Callable[..., Segment], skipped: int = 0
) -> Segment:
    """Returns the segment behind `part` that goes on at a position, or behind so many positions
    that are skipped, with another order from the next epoch on. Raises `ValueError` if samples
    would be lost or repeated."""
    if start < part.segment.start:
        raise ValueError(f"position {start} lies before the last segment, {part.segment.start}")
    if order.count < part.order.count:
        raise ValueError(f"it has {order.count} samples, fewer than {part.order.count} before")
    before, now = part.order.removed, order.removed
    if before is not now and not np.isin(before.ids, now.ids).all():
        raise ValueError("samples that were removed are there again")
    epochs, offsets = part.locate(np.array([start + skipped], np.int64))
    epoch, offset = int(epochs[0]), int(offsets[0])
    left = (part.source(epoch) if offset else order).length - offset
    return segment(start=start, epoch=epoch, offset=offset, epoch_end=start + left)


def _slots(part: Part, first: int, end: int) -> Slots:
    epochs, offsets = part.locate(np.arange(first, end, dtype=np.int64))
    return part.order.with_substitutes(epochs, by_epoch(part.samples, epochs, offsets))


def _check(part: Part) -> None:
    """Raises `ValueError` unless a segment continues the one before."""
    segment, parent = part.segment, part.parent
    same = partial(replace, segment)
    if parent is None:
        expected = begin(part.order, same)
    else:
        jump = parent.position(segment.epoch, np.array([segment.offset], np.int64))
        skipped = max(0, int(jump[0]) - segment.start)
        expected = extend(parent, segment.start, part.order, same, skipped)
    if expected != segment:
        raise ValueError(f"the segment of step {segment.step} does not continue the one before it")
