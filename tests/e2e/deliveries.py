"""Counts of delivered samples by epoch and id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

Slot = tuple[int, ...]
"""A sample's id and its key, which differs in every epoch; in a job of one epoch, the id alone."""


@dataclass(frozen=True)
class Deliveries:
    """Counts over a job's epochs; a slot is one sample of one epoch."""

    lost: int
    """Slots that were not delivered."""
    repeated: int
    """Deliveries beyond the first, summed over all slots."""
    unknown: int = 0
    """Delivered slots that the job does not have: unknown ids, or surplus epochs."""


def count(delivered: Iterable[Slot], samples: int, epochs: int) -> Deliveries:
    """Counts the slots of a job over `samples` samples.

    It counts slots, not samples: else a repeat would cancel a loss of the same sample.
    """
    times = Counter(delivered)
    epochs_of = Counter(sample for sample, *_ in times)
    known = sum(min(epochs_of[sample], epochs) for sample in range(samples))
    return Deliveries(
        lost=samples * epochs - known,
        repeated=times.total() - len(times),
        unknown=len(times) - known,
    )
