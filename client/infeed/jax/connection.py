"""Connection of a sharding with a pipeline: rank, world size and batch size follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from infeed.adapters.lazy_feed import LazyFeed
from infeed.adapters.named_fields import NamedFields
from infeed.client import check_option_names
from infeed.cursor import Shard
from infeed.feed import Feed
from infeed.jax.data_groups import DataGroups, data_groups
from infeed.jax.device_feed import DeviceFeed
from infeed.jax.global_arrays import GlobalArrays
from infeed.prefetch.byte_window import MAX_BATCHES
from infeed.ranks import warn_of_equal_batches
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions

Placement: TypeAlias = Sharding | tuple[Mesh, PartitionSpec] | None


def connect(
    target: str | Feed,
    pipeline: str | None = None,
    *,
    sharding: Placement = None,
    global_batch_size: int | None = None,
    prefetch: int | None = None,
    device_prefetch: int = 2,
    ids: str | None = None,
    mask: str | None = None,
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
    options            as for `infeed.connect`. With a sharding over several processes, `shard`
                       follows from it. The finish transforms run on the devices, unless `finish` is
                       `"trainer"` or `"server"`

    The iterator raises what `infeed.connect` raises, and `InvalidRequestError` for a batch size
    that the sharding does not divide, or a sharding whose processes hold data unevenly.
    """
    check_option_names(options, connect)
    requested, named = _as_sharding(sharding), NamedFields(ids, mask)
    if global_batch_size is not None:
        global_batch_size = check_integer("global_batch_size", global_batch_size, 1)
        if options.get("batch_size") is not None:
            raise InvalidRequestError(
                f"global_batch_size {global_batch_size} and batch_size {options['batch_size']} are "
                "both given: the first counts all ranks, the second one; give one of them"
            )
    if prefetch is not None:
        options["prefetch_batches"] = prefetch
    if not isinstance(target, Feed):
        options.setdefault("finish", "none")
    limit = check_integer("device_prefetch", device_prefetch, 0, MAX_BATCHES)

    def open_feed(lazy: LazyFeed) -> GlobalArrays:
        placement = requested or SingleDeviceSharding(jax.local_devices()[0])
        groups = data_groups(placement)
        spans = not placement.is_fully_addressable
        if not lazy.is_open:
            shard = _shard(groups, options.get("shard"), spans=spans)
            lazy.update_options(shard=shard)
            if global_batch_size is not None:
                lazy.update_options(batch_size=_batch_size(global_batch_size, shard, groups))
        feed = lazy.open()
        if spans and feed.shard != groups.shard:
            raise InvalidRequestError(
                f"the feed is of {feed.shard}, and by the sharding this process is "
                f"{groups.shard}; connect it with that shard, or pass target and pipeline"
            )
        _check_size(feed, groups, global_batch_size)
        return GlobalArrays(feed, placement, groups.shard.world_size, named)

    return DeviceFeed(LazyFeed(target, pipeline, **options), open_feed, limit)


def _as_sharding(given: object) -> Sharding | None:
    if given is None or isinstance(given, Sharding):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        mesh, spec = given
        if isinstance(mesh, Mesh) and isinstance(spec, PartitionSpec):
            return NamedSharding(mesh, spec)
    raise InvalidRequestError(
        f"sharding must be a jax.sharding.Sharding, a pair of Mesh and PartitionSpec, or None, not "
        f"{given!r}"
    )


def _shard(groups: DataGroups, given: Shard | None, *, spans: bool) -> Shard:
    """Returns the rank and world size of this process's feed.

    `spans` is whether the sharding has devices of other processes.
    """
    if spans:
        if given is not None:
            raise InvalidRequestError(
                f"shard {given} is given, and the sharding over several processes makes this one "
                f"{groups.shard}; leave shard out"
            )
        return groups.shard
    if given is None and jax.process_count() > 1:
        raise InvalidRequestError(
            f"the sharding is on this process alone, one of {jax.process_count()}, so all of them "
            "would read the same batches; use a sharding over all processes, or shard=infeed.Shard("
            "jax.process_index(), jax.process_count()), or infeed.Shard(0, 1) for the same batches"
        )
    if given is None:
        warn_of_equal_batches(
            "infeed.jax.connect has no shard, and JAX has one process",
            "shard=infeed.Shard(rank, world_size), or call jax.distributed.initialize first",
        )
    return given or Shard()


def _batch_size(global_batch_size: int, shard: Shard, groups: DataGroups) -> int:
    """Returns the batch size of one rank. Raises `InvalidRequestError` if it is not whole."""
    # Either the ranks are the sharding's, or the sharding is of one rank.
    parts = shard.world_size * groups.count // groups.shard.world_size
    if global_batch_size % parts:
        raise InvalidRequestError(
            f"global_batch_size {global_batch_size} is no multiple of {parts}, the number of "
            f"parts of the batch: {groups.count} data groups of the sharding, {shard.world_size} "
            f"ranks; the next multiple is {-(-global_batch_size // parts) * parts}",
            global_batch_size=global_batch_size,
            parts=parts,
        )
    return global_batch_size // shard.world_size


def _check_size(feed: Feed, groups: DataGroups, global_batch_size: int | None) -> None:
    rows = feed.batch_size * groups.shard.world_size
    if rows % groups.count:
        raise InvalidRequestError(
            f"a batch of {rows} slots, {feed.batch_size} for each of {groups.shard.world_size} "
            f"ranks, does not divide into the {groups.count} data groups of the sharding; choose "
            "global_batch_size",
            rows=rows,
            groups=groups.count,
        )
    total = feed.batch_size * feed.shard.world_size
    if global_batch_size not in {None, total}:
        raise InvalidRequestError(
            f"global_batch_size is {global_batch_size}, and the feed has batches of {total}: "
            f"{feed.batch_size} for each of {feed.shard.world_size} ranks"
        )


__all__ = ["connect"]
