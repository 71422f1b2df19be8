"""Counts every sample of the whole epochs: each is to be there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.stress.chaos.journal import Step


@dataclass(frozen=True)
class Audit:
    """`lost` are samples that an epoch lacks, `repeated` deliveries beyond the first."""

    epochs: int
    samples: int
    lost: int
    repeated: int

    @property
    def exact(self) -> bool:
        return self.epochs > 0 and not self.lost and not self.repeated


def audit(steps: Iterable[Step], sample_count: int, epochs: int) -> Audit:
    """Over the steps of all ranks, as they were delivered."""
    seen: list[Counter[int]] = [Counter() for _ in range(epochs)]
    for step in steps:
        for slot, index in enumerate(step.sample_ids):
            epoch = (step.start + slot) // sample_count
            if step.mask[slot] and epoch < epochs:
                seen[epoch][index] += 1
    return Audit(
        epochs,
        sum(counts.total() for counts in seen),
        sum(index not in counts for counts in seen for index in range(sample_count)),
        sum(count - 1 for counts in seen for count in counts.values()),
    )


def whole_epochs(ranks: list[list[Step]], sample_count: int) -> int:
    """Those that were delivered to their end, when every rank took the same number of steps."""
    end = max(step.start + len(step.mask) for steps in ranks for step in steps)
    return end // sample_count


__all__ = ["Audit", "audit", "whole_epochs"]
