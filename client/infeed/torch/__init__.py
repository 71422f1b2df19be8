"""PyTorch adapters: feeds of tensors, and a dataset for its loaders and trainers.

`connect` returns an iterator over dicts of tensors for a loop of your own; `FeedDataset` is an
`IterableDataset` for DataLoader, StatefulDataLoader, Lightning and Accelerate.
"""

from __future__ import annotations

from infeed.shared.errors import MissingExtraError

try:
    import torch  # noqa: F401 - only to see whether it is installed
except ImportError:
    raise MissingExtraError("infeed.torch needs PyTorch: pip install 'infeed[torch]'") from None

from infeed.torch.feed_dataset import FeedDataset
from infeed.torch.tensor_feed import TensorFeed, connect

__all__ = ["FeedDataset", "TensorFeed", "connect"]


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
