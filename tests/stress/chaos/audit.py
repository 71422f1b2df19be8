"""Audit of the complete epochs: each sample must be delivered exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.stress.chaos.journal import Step


@dataclass(frozen=True)
class Audit:
    """Sample counts; `repeated` counts deliveries after a sample's first in an epoch."""

    epochs: int
    samples: int
    lost: int
    repeated: int

    @property
    def exact(self) -> bool:
        return self.epochs > 0 and not self.lost and not self.repeated


def audit(steps: Iterable[Step], sample_count: int, epochs: int) -> Audit:
    """Counts the samples in the delivered steps of all ranks."""
    counts: list[Counter[int]] = [Counter() for _ in range(epochs)]
    for step in steps:
        for slot, index in enumerate(step.sample_ids):
            epoch = (step.start + slot) // sample_count
            if step.mask[slot] and epoch < epochs:
                counts[epoch][index] += 1
    return Audit(
        epochs,
        sum(epoch_counts.total() for epoch_counts in counts),
        sum(index not in epoch_counts for epoch_counts in counts for index in range(sample_count)),
        sum(count - 1 for epoch_counts in counts for count in epoch_counts.values()),
    )


def complete_epochs(ranks: list[list[Step]], sample_count: int) -> int:
    """Returns the number of fully delivered epochs, if every rank took the same number of steps."""
    end = max(step.start + len(step.mask) for steps in ranks for step in steps)
    return end // sample_count
