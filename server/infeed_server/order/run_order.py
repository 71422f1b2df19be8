"""The order of a run: parts of its definitions' sample streams, end to end.

A run's positions are shifted against a definition's own stream: steps can be skipped, and another
definition can take over at the beginning of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from infeed_server.order.permutation import Positions
from infeed_server.order.sample_order import SampleOrder, Slots

MAX_POSITION = 1 << 62
"""The greatest position of a run: the end of a step behind it fits into 64 bits."""


@dataclass(frozen=True)
class Part:
    """The positions from `begin` up to the next part. Position p has the sample at p + `shift` in
    the stream of `visits`. `order` gives its key and its substitutes; it differs from `visits` in
    the rest of an epoch in which another definition took over."""

    begin: int
    shift: int
    visits: SampleOrder
    order: SampleOrder

    def slots(self, start: int, count: int) -> Slots:
        return self.order.slots(start + self.shift, count, self.visits)


@dataclass(frozen=True)
class RunOrder:
    """The order of a run. The parts are sorted by where they begin; the first begins at 0."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, order: SampleOrder) -> RunOrder:
        """Returns the order of a run with one definition."""
        return cls((Part(0, 0, order, order),))

    @property
    def last(self) -> SampleOrder:
        """The order of the last definition."""
        return self.parts[-1].order

    def slots(self, start: int, count: int) -> Slots:
        """Returns the samples at the positions [start, start + count), one at least."""
        found = [
            part.slots(low, high - low) for part, low, high in self.between(start, start + count)
        ]
        if len(found) == 1:
            return found[0]
        names = ("index", "epoch", "key", "visited")
        return Slots(*(np.concatenate([getattr(one, name) for one in found]) for name in names))

    def require(self, start: int, count: int) -> None:
        """Raises `InvalidRequestError` for positions that the definitions do not allow."""
        for part, low, high in self.between(start, start + count):
            part.visits.require(low + part.shift, high - low)

    def between(self, first: int, end: int) -> Iterator[tuple[Part, int, int]]:
        """Yields the parts that hold the positions [first, end), each with the first and the end of
        its share."""
        following = [*(part.begin for part in self.parts[1:]), end]
        for part, limit in zip(self.parts, following, strict=True):
            low, high = max(part.begin, first), min(limit, end)
            if low < high:
                yield part, low, high

    def at(self, position: int) -> Part:
        """Returns the part of a position."""
        return next(part for part in reversed(self.parts) if part.begin <= position)

    def place(self, position: int) -> tuple[int, int, int]:
        """Returns a position's epoch, its offset there, and the position of the epoch's end."""
        part = self.at(position)
        epoch, offset = divmod(position + part.shift, part.visits.length)
        return epoch, offset, position + part.visits.length - offset

    def position(self, epoch: int, offset: int) -> int:
        """Returns the position of an offset in an epoch, the inverse of `place`. Raises
        `ValueError` if it lies before the run."""
        for part in reversed(self.parts):
            length = part.visits.length
            position = epoch * length + offset - part.shift
            if position >= part.begin and offset < length:
                return position
        raise ValueError(f"offset {offset} of epoch {epoch} lies before the run")

    def without(self, bad: Positions) -> RunOrder:
        """Returns the order that also substitutes samples that are bad under any key."""
        return RunOrder(tuple(replace(part, order=part.order.without(bad)) for part in self.parts))

    def extended(self, start: int, order: SampleOrder, skipped: int = 0) -> RunOrder:
        """Returns the order of a run that skips `skipped` positions at `start`, finishes the epoch,
        and continues in another order. Raises `ValueError` if samples would be lost or repeated."""
        order.check_behind(self.last, start)
        behind = self.at(start + skipped)
        shift = behind.shift + skipped
        epochs, offset = divmod(start + shift, behind.visits.length)
        parts = [part for part in self.parts if part.begin < start]
        begin = start
        if offset:
            parts.append(Part(start, shift, behind.visits, order))
            epochs, begin = epochs + 1, start + behind.visits.length - offset
        if max(epochs * order.length, begin) > MAX_POSITION:
            raise ValueError(f"epoch {epochs} lies beyond all positions")
        return RunOrder((*parts, Part(begin, epochs * order.length - begin, order, order)))
