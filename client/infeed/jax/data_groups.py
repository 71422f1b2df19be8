"""Data groups of a sharding: the devices that hold the same rows of a batch, and their ranks.

A group is a distinct range of axis 0. With a mesh of 4x2 devices and `PartitionSpec("data")`
there are four groups of two devices. Processes whose devices hold the same groups are replicas:
they are the same rank of the feed, and read identical batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from infeed.cursor import Shard
from infeed.shared.errors import InvalidRequestError


@dataclass(frozen=True)
class DataGroups:
    """The groups of a sharding, and the shard of this process.

    `shard.world_size` is the number of distinct sets of groups that a process holds.
    """

    count: int
    shard: Shard


def data_groups(sharding: Sharding) -> DataGroups:
    """Returns the data groups of a sharding, the same on every process but for the rank.

    Raises `InvalidRequestError` if processes hold groups unevenly.
    """
    # A multiple of the number of groups. They are the same for every batch size.
    rows = len(sharding.device_set)
    try:
        indices = trimmed(sharding, 1).devices_indices_map((rows,))
    except ValueError as error:
        raise InvalidRequestError(
            f"{sharding} is for arrays of a fixed number of dimensions, and the fields of a batch "
            "differ in theirs; use a jax.sharding.NamedSharding"
        ) from error
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
            f"process {process} has no device of the sharding, which is on processes "
            f"{_listed(held)}; connect on those, or include this process's devices in the mesh"
        )
    ranks = sorted({frozenset(groups) for groups in held.values()}, key=min)
    sizes = {len(groups) for groups in ranks}
    if len(sizes) > 1 or sum(map(len, ranks)) > len(frozenset().union(*ranks)):
        described = "; ".join(
            f"process {index} holds {_listed(groups)}" for index, groups in sorted(held.items())
        )
        raise InvalidRequestError(
            "the processes of the sharding must hold equally many data groups (ranges of axis 0), "
            f"the same or none in common: {described}; order the devices of the mesh by process"
        )
    return Shard(ranks.index(frozenset(held[process])), len(ranks))


def trimmed(sharding: Sharding, dimensions: int) -> Sharding:
    """Returns the sharding for an array of so many dimensions, whose spec may have more."""
    if not isinstance(sharding, NamedSharding) or len(sharding.spec) <= dimensions:
        return sharding
    spec: Any = PartitionSpec
    spec = spec(*sharding.spec[:dimensions])
    return NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)


def _listed(numbers: Set[int] | Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(numbers)))
