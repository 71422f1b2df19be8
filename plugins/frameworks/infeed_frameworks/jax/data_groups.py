"""Data groups of a sharding: the devices that hold the same rows of a batch, and their ranks.
Rank, world size and batch size of a feed follow from them.

A group is a distinct range of axis 0. With a mesh of 4x2 devices and `PartitionSpec("data")`
there are four groups of two devices. Processes whose devices hold the same groups are replicas:
they are the same rank of the feed, and read identical batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from infeed.cursor import Shard
from infeed.feed import Feed
from infeed.ranks import warn_of_equal_batches
from infeed.shared.errors import InvalidRequestError


@dataclass(frozen=True)
class DataGroups:
    """The groups of a sharding, and the shard of this process.

    `shard.world_size` is the number of distinct sets of groups that a process holds.
    """

    count: int
    shard: Shard


def data_groups(sharding: Sharding) -> DataGroups:
    """Returns the data groups of a sharding, the same on every process except for the rank.

    Raises `InvalidRequestError` if processes hold groups unevenly.
    """
    # A multiple of the number of groups. They are the same for every batch size.
    rows = len(sharding.device_set)
    indices = trimmed(sharding, 1).devices_indices_map((rows,))
    begins = {device: index[0].indices(rows)[0] for device, index in indices.items()}
    numbers = {begin: number for number, begin in enumerate(sorted(set(begins.values())))}
    held: dict[int, set[int]] = {}
    device: Any
    for device, begin in begins.items():
        held.setdefault(device.process_index, set()).add(numbers[begin])
    return DataGroups(len(numbers), shard_of(jax.process_index(), held))


def shard_of(process: int, held: Mapping[int, Set[int]]) -> Shard:
    """Returns the shard of a process; `held` has the groups of each process of the sharding.

    The set of groups that begins first is rank 0. Raises `InvalidRequestError` if the process holds
    no group, or if two processes hold different groups that are not as many, or overlap.
    """
    if process not in held:
        raise InvalidRequestError(
            f"process {process} has no device of the sharding, which spans processes "
            f"{_listed(held)}; connect on those, or include this process's devices in the mesh"
        )
    ranks = sorted({frozenset(groups) for groups in held.values()}, key=min)
    overlap = sum(map(len, ranks)) > len(frozenset().union(*ranks))
    if overlap or len({len(groups) for groups in ranks}) > 1:
        described = "; ".join(
            f"process {index} holds {_listed(groups)}" for index, groups in sorted(held.items())
        )
        raise InvalidRequestError(
            "the processes of the sharding must hold the same number of data groups (ranges of "
            f"axis 0), all or none in common: {described}; order the mesh's devices by process"
        )
    return Shard(ranks.index(frozenset(held[process])), len(ranks))


def trimmed(sharding: Sharding, dimensions: int) -> Sharding:
    """Returns the sharding for an array of this number of dimensions, whose spec may have more."""
    if not isinstance(sharding, NamedSharding) or len(sharding.spec) <= dimensions:
        return sharding
    spec: Any = PartitionSpec
    spec = spec(*sharding.spec[:dimensions])
    return NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)


def as_sharding(given: object) -> Sharding | None:
    """Returns the sharding of a user's argument. Raises `InvalidRequestError` for another type."""
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


def process_shard(groups: DataGroups, given: Shard | None, *, spans: bool) -> Shard:
    """Returns the rank and world size of this process's feed.

    `spans` is whether the sharding has devices of other processes.
    """
    if spans:
        if given is not None:
            raise InvalidRequestError(
                f"shard {given} contradicts the sharding over several processes, which makes this "
                f"one {groups.shard}; leave out shard"
            )
        return groups.shard
    if given is None and jax.process_count() > 1:
        raise InvalidRequestError(
            f"the sharding covers only this process, one of {jax.process_count()}, so all of them "
            "would read the same batches; use a sharding over all processes, or shard=infeed.Shard("
            "jax.process_index(), jax.process_count())"
        )
    if given is None:
        warn_of_equal_batches(
            "infeed.jax.connect has no shard, and JAX has one process",
            "shard=infeed.Shard(rank, world_size), or call jax.distributed.initialize first",
        )
    return given or Shard()


def rank_batch_size(global_batch_size: int, shard: Shard, groups: DataGroups) -> int:
    """Returns the batch size of one rank. Raises `InvalidRequestError` if it is not an integer."""
    # Either the ranks are the sharding's, or the sharding has one rank.
    parts = shard.world_size * groups.count // groups.shard.world_size
    if global_batch_size % parts:
        raise InvalidRequestError(
            f"global_batch_size {global_batch_size} is not a multiple of {parts}, which the "
            f"sharding's {groups.count} data groups and {shard.world_size} ranks require; the "
            f"next multiple is {-(-global_batch_size // parts) * parts}"
        )
    return global_batch_size // shard.world_size


def check_size(feed: Feed, groups: DataGroups, global_batch_size: int | None) -> None:
    """Raises `InvalidRequestError` for a batch that the data groups do not divide, or whose size
    is not the global one."""
    rows = feed.batch_size * groups.shard.world_size
    if rows % groups.count:
        raise InvalidRequestError(
            f"a batch of {rows} slots, {feed.batch_size} for each of {groups.shard.world_size} "
            f"ranks, does not divide into the {groups.count} data groups of the sharding; set "
            "global_batch_size"
        )
    total = feed.batch_size * feed.shard.world_size
    if global_batch_size not in {None, total}:
        raise InvalidRequestError(
            f"global_batch_size is {global_batch_size}, but the feed has batches of {total}, "
            f"{feed.batch_size} for each of {feed.shard.world_size} ranks; leave it out"
        )


def _listed(numbers: Set[int] | Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(numbers)))
