"""The samples of a run, as arrays: what differs between two runs is arithmetic on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.shared.spec.segment import Lineage
from infeed_server.order import RunOrder
from infeed_server.order.permutation import Positions
from infeed_server.order.sample_order import by_epoch
from infeed_server.run.definitions import Opened


@dataclass(frozen=True)
class Side:
    """One of two runs, with the definition of its last segment."""

    opened: Opened
    lineage: Lineage
    run: RunOrder

    @property
    def key(self) -> tuple[Any, ...]:
        """What its samples and draws depend on, beside the source."""
        segments = [replace(s, pipeline="", fingerprint="", step=0) for s in self.lineage]
        plain = [replace(segment, batch_size=1, world_size=1) for segment in segments]
        return tuple(plain), self.opened.removed[: self.lineage[-1].removed]


@dataclass(frozen=True)
class Samples:
    """The samples at consecutive positions: what their keys are drawn from, and whether each is a
    substitute, of which the key is drawn from the removed sample's."""

    index: Positions
    epoch: Positions
    seed: Positions
    substitute: np.ndarray
    key: np.ndarray

    @classmethod
    def of(cls, side: Side, first: int, end: int) -> Samples:
        count = end - first
        index, epoch, seed = (np.empty(count, np.int64) for _ in range(3))
        key, substitute = np.zeros((count, 2), np.int64), np.zeros(count, bool)
        for part, low, high in side.run.between(first, end):
            rows = slice(low - first, high - first)
            epochs, offsets = part.locate(np.arange(low, high, dtype=np.int64))
            found = by_epoch(part.samples, epochs, offsets)
            gone = part.order.removed.contains(found)
            if gone.any():
                drawn = part.order.with_substitutes(epochs[gone], found[gone])
                found[gone], key[rows][gone] = drawn.index, drawn.key
            index[rows], epoch[rows], seed[rows] = found, epochs, part.order.seed
            substitute[rows] = gone
        return cls(index, epoch, seed, substitute, key)

    def other_draws(self, other: Samples, others: np.ndarray) -> np.ndarray:
        """Returns where the keys differ; `others` is where the samples do."""
        plain = others | (self.epoch != other.epoch) | (self.seed != other.seed)
        both = self.substitute & other.substitute
        differs = np.where(both, False, plain | (self.substitute != other.substitute))
        differs[both] = (self.key[both] != other.key[both]).any(axis=1)
        return differs
