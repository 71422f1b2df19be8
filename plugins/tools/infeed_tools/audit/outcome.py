"""Totals of an audit: delivered positions, and the sample ids of each epoch."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EXAMPLES = 10
"""Problems of each kind that are listed; more are only counted."""

Interval = tuple[int, int]
"""[begin, end)."""


@dataclass(frozen=True)
class SampleAt:
    """A sample id and a position at which it was delivered."""

    sample_id: int
    position: int


@dataclass(frozen=True)
class EpochTotals:
    """How often the sample ids of one epoch were delivered."""

    epoch: int
    """The number of the epoch, from 0."""
    samples: int
    """Existing ids; if the length is unknown, those up to the highest delivered id."""
    once: int
    """Ids delivered once."""
    more: int
    """Ids delivered more than once."""
    never: int
    """Ids never delivered: left out, masked, substituted or lost."""
    left_out: int
    """Missing ids whose positions are after the end of the audit."""
    masked: int
    """Missing ids of bad samples, whose slots are empty under `on_error: mask`."""
    substituted: int
    """Missing ids of bad samples, whose slots hold other samples under `on_error: substitute`."""
    lost: int
    """Ids that were not delivered and are not accounted for."""
    surplus: int
    """Slots whose sample is also in another slot."""
    strangers: int
    """Slots with an id that the pipeline does not have."""
    unseen: tuple[int, ...]
    """The first ten missing ids, except those known to be bad; some may be left out, not lost."""
    repeats: tuple[SampleAt, ...]
    """The first ten slots with a repeated sample, with their positions."""
    unknown: tuple[SampleAt, ...]
    """The first ten unknown ids, with their positions."""

    by_part: bool = False
    """Whether a mixture's weights decide how often samples come: several times, or never."""

    @property
    def exact(self) -> bool:
        """Whether every sample was delivered once or is accounted for. For a mixture,
        `PartTotals.exact` decides that."""
        if self.by_part:
            return self.samples > 0 and not self.strangers
        wrong = self.lost or self.strangers or self.surplus != self.substituted
        return self.samples > 0 and not wrong


@dataclass(frozen=True)
class PartTotals:
    """How often the samples of a part of a mixture were delivered, in all epochs."""

    name: str
    samples: int
    slots: int
    """Slots with a sample of the part."""
    least: int
    """Times that the rarest sample was delivered."""
    most: int
    """Times that the most frequent sample was delivered."""
    exact: bool
    """Whether every sample came before any came once more, or no epoch repeats a sample."""


@dataclass(frozen=True)
class AuditTotals:
    """The deliveries at the positions [0, end)."""

    end: int
    epochs: tuple[EpochTotals, ...]
    undelivered: int
    """Positions that were not delivered."""
    redelivered: int
    """Repeated deliveries of positions, each counted."""
    beyond: int
    """Delivered positions from `end` on."""
    gaps: tuple[Interval, ...]
    """The first intervals of `undelivered`."""
    again: tuple[Interval, ...]
    """The first intervals of `redelivered`."""
    parts: tuple[PartTotals, ...] = ()
    """The parts of a mixture."""

    @property
    def exact(self) -> bool:
        """Whether every sample of every epoch was delivered exactly once or is accounted for."""
        positions_exact = not (self.undelivered or self.redelivered or self.beyond)
        parts_exact = all(part.exact for part in self.parts)
        return positions_exact and parts_exact and all(epoch.exact for epoch in self.epochs)
