"""Whether a dataset that is taken to be deterministic gives the same when it is read again."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Hashable

from infeed.errors import SourceError
from infeed_server.engines.blocks import Block
from infeed_server.pipeline.sequential import SequentialPlan

_MAX_KEYS = 64
"""Readings of different seeds and batch sizes that are remembered."""


class Witness:
    """Remembers the first block of each kind of reading. What begins alike need not go on alike,
    but Python functions that draw at random are found out. Thread-safe."""

    def __init__(self, plan: SequentialPlan) -> None:
        self._plan = plan
        # Whoever says so has been asked.
        self._believes = plan.source.deterministic is not None
        self._seen: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, kind: Hashable, first: Block) -> None:
        """Raises `SourceError` where an earlier reading of the kind began with another block."""
        if self._believes:
            return
        digest = _digest(first)
        with self._lock:
            known = self._seen.setdefault(kind, digest)
            if len(self._seen) > _MAX_KEYS:
                self._seen.popitem(last=False)
        if known != digest:
            label = self._plan.source.label
            raise SourceError(
                f"the dataset of {label} was taken to be deterministic, and began with other "
                "elements when it was read again: seed what it draws at random, or say "
                "deterministic: false",
                pipeline=self._plan.spec.name,
            )


def _digest(block: Block) -> bytes:
    result = hashlib.sha256()
    for name, array in sorted(block.arrays.items()):
        data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        result.update(f"{name} {array.dtype} {array.shape} {len(data)} ".encode() + data)
    return result.digest()


__all__ = ["Witness"]
