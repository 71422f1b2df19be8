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

from infeed.adapters.lazy_feed import LazyFeed
from infeed.adapters.tensor_reader import TensorReader, Tensors
from infeed.client import check_option_names
from infeed.feed import Feed
from infeed.shared.copies import refuse_copy
from infeed.stats import Stats
from infeed.torch.shard import ShardChoice, changed_shard
from infeed.torch.tensors import TensorConverter

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class TensorFeed(Iterator[Tensors]):
    """Iterates over the batches of one rank as dicts of writable tensors, in order, each once.

    Returned by `infeed.torch.connect`. It is no DataLoader, so a trainer leaves it as it is.
    """

    def __init__(
        self, feed: Feed, convert: TensorConverter, shard: ShardChoice | None = None
    ) -> None:
        """Takes a feed, which `close` closes, and the choice of its shard if it had one."""
        self.feed = feed
        self._shard = shard or ShardChoice(feed.shard)
        self._reader = TensorReader(feed, convert)

    def __len__(self) -> int:
        """Returns the batches from the feed's beginning to its end; raises `TypeError` if they are
        endless or unknown."""
        return len(self.feed)

    def __bool__(self) -> bool:
        """Returns True, also for a feed without batches or without a length."""
        return True

    def __iter__(self) -> TensorFeed:
        """Returns itself: a second loop continues. Raises `FeedClosedError` after the end."""
        iter(self.feed)
        return self

    def __next__(self) -> Tensors:
        """Returns the next batch; raises `StopIteration` after the last, and the feed's errors.

        An exception of a signal handler neither loses nor counts the batch.
        """
        if self._shard.has_changed(self.feed.shard):
            raise changed_shard(self.feed.shard)
        return self._reader.next()

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last batch of this iterator, for `state` of any feed."""
        return self.feed.state(self._reader.taken)

    def stats(self) -> Stats:
        """Returns the statistics of the feed so far."""
        return self.feed.stats()

    def close(self) -> None:
        """Closes the feed; tensors stay valid."""
        self.feed.close()

    __reduce__ = refuse_copy

    def __enter__(self) -> TensorFeed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
    options    those of `infeed.connect`. Without `shard`, rank and world size are those of
               `torch.distributed` if it is initialized

    Raises what `infeed.connect` raises, and `InvalidRequestError` without `shard` if the
    environment shows several processes, and `torch.distributed` is not initialized.
    """
    check_option_names(options, connect)
    convert = TensorConverter(device, ids, mask)
    if isinstance(target, Feed):
        return TensorFeed(LazyFeed(target, pipeline, **options).open(), convert)
    shard = ShardChoice(options.get("shard"))
    options["shard"] = shard.for_batches()
    return TensorFeed(LazyFeed(target, pipeline, **options).open(), convert, shard)
