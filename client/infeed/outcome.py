"""What a count of batches comes to: plain values, and whether they are what was promised."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.sightings import Repeat, Stranger
from infeed.spans import Span


@dataclass(frozen=True)
class EpochOutcome:
    """How often the sample ids of one epoch were seen, in samples.

    samples      ids there are; where the pipeline's length is unknown, as far as they were seen
    once, more, never   ids that were seen once, more than once, not at all
    left_out     never seen, and rightly: the walk ended before their positions
    masked       never seen: their slots were empty, as `on_error: mask` makes those of bad samples
    substituted  never seen, and known to be bad: `on_error: substitute` put others in their slots
    lost         never seen, for no good reason
    surplus      slots that hold a sample which another slot holds too
    strangers    slots that hold an id which the pipeline does not have
    unseen       ids that were never seen: a few, of which `left_out` are rightly so
    repeats, unknown    the first of the surplus and of the strangers, with their positions
    """

    epoch: int
    samples: int
    once: int
    more: int
    never: int
    left_out: int
    masked: int
    substituted: int
    lost: int
    surplus: int
    strangers: int
    unseen: tuple[int, ...]
    repeats: tuple[Repeat, ...]
    unknown: tuple[Stranger, ...]

    @property
    def exact(self) -> bool:
        """Whether every sample came once, or is accounted for."""
        wrong = self.lost or self.strangers or self.surplus != self.substituted
        return self.samples > 0 and not wrong


@dataclass(frozen=True)
class Outcome:
    """What was delivered of the positions [0, end), epoch by epoch.

    undelivered  positions that never came; `gaps` are the first spans of them
    redelivered  positions that came again; `again` are the first spans of them
    beyond       positions from `end` on that came all the same
    """

    end: int
    epochs: tuple[EpochOutcome, ...]
    undelivered: int
    redelivered: int
    beyond: int
    gaps: tuple[Span, ...]
    again: tuple[Span, ...]

    @property
    def exact(self) -> bool:
        """Whether every sample of every epoch came exactly once, or is accounted for."""
        positions_exact = not (self.undelivered or self.redelivered or self.beyond)
        return positions_exact and all(epoch.exact for epoch in self.epochs)


__all__ = ["EpochOutcome", "Outcome"]
