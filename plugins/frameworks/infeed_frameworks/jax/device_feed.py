"""Device feed: the iterator over a feed's global batches, some of them already on the devices.

It has no thread: each `next` begins the transfer of the batches that have arrived and returns the
first one. Transfers run while the devices compute, and the waits in `stats()` are the loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
from jax.sharding import Mesh, PartitionSpec, Sharding, SingleDeviceSharding

from infeed.client import check_options
from infeed.feed import Feed
from infeed.prefetch.byte_window import MAX_BATCHES, MIN_BATCHES
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError
from infeed_frameworks.feed_adapter import FeedAdapter
from infeed_frameworks.jax.data_groups import (
    as_sharding,
    check_size,
    data_groups,
    process_shard,
    rank_batch_size,
)
from infeed_frameworks.jax.global_arrays import GlobalArrays, TransferredBatch
from infeed_frameworks.named_fields import NamedFields

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions

Placement: TypeAlias = Sharding | tuple[Mesh, PartitionSpec] | None


@dataclass(frozen=True)
class DeviceOptions:
    """The options of `connect` for JAX."""

    sharding: Sharding | None
    global_batch_size: int | None
    device_prefetch: int

    def placement(self) -> Sharding:
        """Returns the sharding; the default initialises JAX."""
        return self.sharding or SingleDeviceSharding(jax.local_devices()[0])


class DeviceFeed(FeedAdapter, Iterator[dict[str, Any]]):
    """Iterates over dicts of field → global `jax.Array`, in order, each once.

    Returned by `infeed.jax.connect`. The first batch connects; so do `len`, `feed` and `stats`.
    Fields of byte strings are NumPy arrays with the rows of this process. The state is the same on
    every process. Batches on the devices that the loop has not taken do not count.
    """

    def __init__(
        self,
        target: str | Feed,
        pipeline: str | None,
        fields: NamedFields,
        own: DeviceOptions,
        **options: Unpack[ConnectOptions],
    ) -> None:
        super().__init__(target, pipeline, fields, **options)
        self._own = own
        self._arrays: GlobalArrays | None = None
        self._queue: deque[TransferredBatch | Exception] = deque()
        """Batches that the feed has delivered but the loop has not taken, in order; an error stands
        for a batch that cannot be transferred."""

    def _check(self, feed: Feed) -> None:
        self._fields.check(feed, is_static=True)

    def _late_options(self) -> ConnectOptions:
        placement, size = self._own.placement(), self._own.global_batch_size
        groups = data_groups(placement)
        spans = not placement.is_fully_addressable
        shard = process_shard(groups, self._options.get("shard"), spans=spans)
        late: ConnectOptions = {"shard": shard}
        if size is not None:
            late["batch_size"] = rank_batch_size(size, shard, groups)
        return late

    @property
    def feed(self) -> Feed:
        """The feed of this process, connected: `steps`, `steps_per_epoch`, `spec` and more."""
        feed = super().feed
        if self._arrays is None:
            placement = self._own.placement()
            groups = data_groups(placement)
            if not placement.is_fully_addressable and feed.shard != groups.shard:
                raise InvalidRequestError(
                    f"the feed belongs to {feed.shard}, but the sharding makes this process "
                    f"{groups.shard}; connect it with that shard, or pass target and pipeline"
                )
            check_size(feed, groups, self._own.global_batch_size)
            world_size = groups.shard.world_size
            self._arrays = GlobalArrays(feed, placement, world_size, self._fields)
        return feed

    def __iter__(self) -> DeviceFeed:
        """Returns itself: a second loop continues. Raises `FeedClosedError` after the end."""
        return self if self._queue else super().__iter__()

    def __next__(self) -> dict[str, Any]:
        """Returns the next batch, a plain dict; raises `StopIteration` after the last, and the
        feed's errors after the batches before them."""
        feed, queue = self.feed, self._queue
        assert self._arrays is not None
        while not queue or (len(queue) <= self._own.device_prefetch and feed.has_next):
            try:
                batch = feed.next()
            except Exception:
                if not queue:
                    raise
                break  # raised again after the batches before it
            try:
                queue.append(self._arrays.transfer(batch))
            except Exception as error:  # noqa: BLE001 - raised after the batches before it
                queue.append(error)
        if isinstance(queue[0], Exception):
            raise queue[0]
        batch_on_devices = self._arrays.finish(queue[0])
        queue.popleft()
        return batch_on_devices

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last batch that the loop has taken, for JSON; neither
        connects nor initialises JAX."""
        if self._feed is None or not self._queue:
            return super().state()
        return self._feed.state(self._feed.delivered - len(self._queue))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a cursor with the next batch. Raises `CursorError` if it is not a cursor."""
        super().load_state(state)
        self._queue.clear()
        self._arrays = None


def connect(  # noqa: PLR0913 - a user's options, flat as in the other frameworks
    target: str | Feed,
    pipeline: str | None = None,
    *,
    sharding: Placement = None,
    global_batch_size: int | None = None,
    prefetch: int | None = None,
    device_prefetch: int = 2,
    ids: str | None = None,
    mask: str | None = None,
    part: str | None = None,
    **options: Unpack[ConnectOptions],
) -> DeviceFeed:
    """Returns an iterator of global batches; the first one connects.

    target             as for `infeed.connect`, or a feed of it, alone
    pipeline           name of the pipeline
    sharding           a `jax.sharding.Sharding`, or a mesh and a `PartitionSpec`, for all fields;
                       a spec with more entries than a field has dimensions is cut. None: the first
                       device of this process
    global_batch_size  slots over all ranks; None: the pipeline's batch size, or the option
                       `batch_size`, for each rank
    prefetch           bound on the batches that are prefetched to the host, 2 to 64; None: as many
                       as `prefetch_bytes` holds
    device_prefetch    batches that are transferred to the devices before the loop takes them
    ids                name of an additional field with the sample ids, -1 for an empty slot
    mask               name of an additional field: which slots hold a sample
    part               name of an additional field with the number of each slot's part of a mixture,
                       -1 for an empty slot
    options            as for `infeed.connect`. With a sharding over several processes, `shard`
                       follows from it. The finish transforms run on the devices, unless `finish` is
                       `"trainer"` or `"server"`

    The iterator raises what `infeed.connect` raises, and `InvalidRequestError` for a batch size
    that the sharding does not divide, or a sharding whose processes hold data unevenly.
    """
    check_options(options, connect)
    if global_batch_size is not None:
        global_batch_size = check_integer("global_batch_size", global_batch_size, 1)
        if options.get("batch_size") is not None:
            raise InvalidRequestError(
                f"global_batch_size {global_batch_size} and batch_size {options['batch_size']} "
                "conflict: one counts all ranks, the other a single rank; give only one"
            )
    if prefetch is not None:
        options["prefetch_batches"] = check_integer("prefetch", prefetch, MIN_BATCHES, MAX_BATCHES)
    if not isinstance(target, Feed):
        options.setdefault("finish", "none")
    limit = check_integer("device_prefetch", device_prefetch, 0, MAX_BATCHES)
    own = DeviceOptions(as_sharding(sharding), global_batch_size, limit)
    return DeviceFeed(target, pipeline, NamedFields(ids, mask, part), own, **options)
