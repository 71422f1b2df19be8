"""PyTorch adapters: feeds of tensors, and a dataset for its loaders and trainers.

`connect` returns an iterator over dicts of tensors for your own loop. `FeedDataset` is an
`IterableDataset` for DataLoader, StatefulDataLoader, Lightning and Accelerate; `FeedCallback` saves
its state in Lightning's checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import added_names, require

require("torch", "PyTorch")

if TYPE_CHECKING:
    from infeed_frameworks.torch.feed_dataset import FeedDataset
    from infeed_frameworks.torch.lightning import FeedCallback
    from infeed_frameworks.torch.tensor_feed import TensorFeed, connect

__all__ = ["FeedCallback", "FeedDataset", "TensorFeed", "connect"]

__getattr__, __dir__ = added_names(__name__)
