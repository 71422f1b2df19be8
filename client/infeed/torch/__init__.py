"""PyTorch adapters: feeds of tensors, and a dataset for its loaders and trainers.

`connect` returns an iterator over dicts of tensors for a loop of your own; `FeedDataset` is an
`IterableDataset` for DataLoader, StatefulDataLoader, Lightning and Accelerate, and `FeedCallback`
saves its state in Lightning's checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import import_lazily, require

require("torch", "PyTorch")

from infeed.torch.feed_dataset import FeedDataset
from infeed.torch.tensor_feed import TensorFeed, connect

if TYPE_CHECKING:
    from infeed.torch.lightning import FeedCallback

__all__ = ["FeedCallback", "FeedDataset", "TensorFeed", "connect"]

__getattr__ = import_lazily(__name__, {"FeedCallback": "infeed.torch.lightning"})
"""It imports Lightning."""
