"""The count of delivered samples by epoch and id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

Slot = tuple[int, ...]
"""A sample's id, then its key, which differs in every epoch: so it names (epoch, id). With one
epoch the id will do."""


@dataclass(frozen=True)
class Deliveries:
    """What came of the samples of some epochs; a slot is one sample of one epoch."""

    lost: int
    """Slots that never came."""
    repeated: int
    """Deliveries beyond the first, summed over all slots."""
    unknown: int = 0
    """Slots that the job does not have: of a foreign id, or of more epochs than it has."""


def count(seen: Iterable[Slot], samples: int, epochs: int) -> Deliveries:
    """Counts the slots of a job over `samples` samples.

    Sums per sample would not do: a slot that comes twice makes up for one that never comes.
    """
    times = Counter(seen)
    epochs_of = Counter(sample for sample, *_ in times)
    known = sum(min(epochs_of[sample], epochs) for sample in range(samples))
    return Deliveries(
        lost=samples * epochs - known,
        repeated=times.total() - len(times),
        unknown=len(times) - known,
    )
