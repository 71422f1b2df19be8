"""Direct iterator over tensors, for training loops without a loader.

with infeed.torch.connect("localhost:7470", "imagenet-train", batch_size=128) as feed:
    for batch in feed:                        # a dict of field name → torch.Tensor
        step(batch["image"], batch["label"])
        checkpoint["feed"] = feed.state()     # later: connect(..., state=checkpoint["feed"])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from infeed.adapters.feed_adapter import FeedAdapter
from infeed.adapters.lazy_feed import LazyFeed
from infeed.client import check_option_names
from infeed.feed import Feed
from infeed.torch.shard import ShardChoice
from infeed.torch.tensors import TensorConverter

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions

Tensors = dict[str, Any]


class TensorFeed(FeedAdapter, Iterator[Tensors]):
    """Iterates over the batches of one rank as dicts of writable tensors, in order, each once.

    Returned by `infeed.torch.connect`. It is no DataLoader, so a trainer leaves it as it is.
    """

    def __init__(self, lazy: LazyFeed, convert: TensorConverter, shard: ShardChoice) -> None:
        super().__init__(lazy)
        self._convert, self._shard = convert, shard

    def __next__(self) -> Tensors:
        """Returns the next batch; raises `StopIteration` after the last, and the feed's errors."""
        self._shard.check_unchanged(self.feed.shard)
        return self._convert(self.feed.next())

    def __repr__(self) -> str:
        return f"TensorFeed({self.feed!r})"


def connect(
    target: str | Feed,
    pipeline: str | None = None,
    *,
    device: str | torch.device | None = None,
    ids: str | None = None,
    mask: str | None = None,
    **options: Unpack[ConnectOptions],
) -> TensorFeed:
    """Opens a feed of tensors.

    target     as for `infeed.connect`, or a feed of it
    pipeline   name of the pipeline; None for a feed
    device     the tensors' device; "cuda" copies through pinned memory and does not wait for the
               copies; None: tensors of the batch's own memory, without a copy
    ids        name of a field for the sample ids, int64 for each slot; None: no such field
    mask       name of a field for the mask, bool for each slot; None: no such field
    options    as for `infeed.connect`. Without `shard`, `torch.distributed` has rank and world
               size, if it is initialized

    Raises what `infeed.connect` raises, and `InvalidRequestError` without `shard` if the
    environment shows several processes, and `torch.distributed` is not initialized.
    """
    check_option_names(options, connect)
    convert = TensorConverter(device, ids, mask)
    lazy = LazyFeed(target, pipeline, **options)
    shard = ShardChoice(target.shard if isinstance(target, Feed) else options.get("shard"))
    if not lazy.is_open:
        lazy.update_options(shard=shard.for_batches())
    lazy.open()
    return TensorFeed(lazy, convert, shard)
