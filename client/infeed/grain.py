"""Grain adapters: a dataset of batches, and checkpoints of iterators.

`FeedDataset` is a `grain.IterDataset` over the batches of a feed, and its iterator's state is the
feed's cursor. `Checkpointable`, `CheckpointSave` and `CheckpointRestore` save the state of any
Grain iterator with Orbax and can restore it on a different number of processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import added_names, require

require("grain", "Grain")

if TYPE_CHECKING:
    from infeed_frameworks.grain.checkpoint import Checkpointable, read_state
    from infeed_frameworks.grain.dataset import FeedDataset, FeedIterator
    from infeed_frameworks.grain.orbax_handler import (
        CheckpointHandler,
        CheckpointRestore,
        CheckpointSave,
    )

__all__ = [
    "CheckpointHandler",
    "CheckpointRestore",
    "CheckpointSave",
    "Checkpointable",
    "FeedDataset",
    "FeedIterator",
    "read_state",
]

__getattr__, __dir__ = added_names(__name__)
