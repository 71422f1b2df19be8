"""Grain adapters: the only package of the client that imports Grain.

`FeedDataset` is a `grain.IterDataset` over the batches of a feed, and its iterator's state is the
feed's cursor. `Checkpointable`, `CheckpointSave` and `CheckpointRestore` save the state of any
Grain iterator with Orbax, and restore it on another number of processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import import_lazily, require

require("grain", "Grain")

from infeed.grain.checkpoint import Checkpointable, read_state
from infeed.grain.dataset import FeedDataset, FeedIterator

if TYPE_CHECKING:
    from infeed.grain.orbax_handler import CheckpointHandler, CheckpointRestore, CheckpointSave

__all__ = [
    "CheckpointHandler",
    "CheckpointRestore",
    "CheckpointSave",
    "Checkpointable",
    "FeedDataset",
    "FeedIterator",
    "read_state",
]

# They need Orbax, which takes seconds.
__getattr__ = import_lazily(__name__, dict.fromkeys(__all__[:3], "infeed.grain.orbax_handler"))
