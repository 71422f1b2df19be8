"""PyTorch adapters: feeds of tensors, and a dataset for its loaders and trainers.

`connect` returns an iterator over dicts of tensors for a loop of your own; `FeedDataset` is an
`IterableDataset` for DataLoader, StatefulDataLoader, Lightning and Accelerate.
"""

from __future__ import annotations

from infeed.adapters import require

require("torch", "PyTorch")

from infeed.torch.feed_dataset import FeedDataset
from infeed.torch.tensor_feed import TensorFeed, connect

__all__ = ["FeedDataset", "TensorFeed", "connect"]
