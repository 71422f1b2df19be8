"""Shard of a feed: the one that was given, or the rank in `torch.distributed`."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch.distributed as dist

from infeed.cursor import Shard
from infeed.ranks import LAUNCHERS
from infeed.shared.errors import InvalidRequestError

_REMEDY = "initialize torch.distributed before it, or give shard=infeed.Shard(rank, world_size)"


class ShardChoice:
    """Chooses the shard of a dataset's feeds, as late as possible.

    Training programs create a dataset, and ask for its length, before they initialize
    `torch.distributed`.
    """

    def __init__(self, given: Shard | None) -> None:
        """Takes the shard of the user; None: the default process group's."""
        self._given = given
        self._length_size: int | None = None
        """The world size of the lengths that were reported."""
        self._chosen: Shard | None = None
        """The shard of the first batch, which a group that ends afterwards leaves as it is."""

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy in another process needs, whose rank may differ."""
        return {**vars(self), "_chosen": None}

    def for_batches(self) -> Shard:
        """Returns the shard for a feed. Raises `InvalidRequestError` if it is not known yet, or if
        a length was reported for another world size."""
        if self._given is not None:
            return self._given
        shard, several = _group_shard() or self._chosen, _several_processes()
        if shard is None and several is not None:
            name, count = several
            raise InvalidRequestError(
                f"no shard for the first batch: torch.distributed is not initialized, but {name} "
                f"is {count}, so each of {count} processes would read all batches; {_REMEDY}"
            )
        self._chosen = shard or Shard()
        self._check_length(self._chosen.world_size)
        return self._chosen

    def for_length(self) -> int:
        """Returns the world size for a length. Raises `InvalidRequestError` if a length was
        reported for another one."""
        if (shard := self._given or _group_shard() or self._chosen) is not None:
            size = shard.world_size
        else:
            _, size = _several_processes() or ("", 1)
        if self._given is None:
            self._check_length(size)
            self._length_size = size
        return size

    def check_unchanged(self, used: Shard) -> None:
        """Raises `InvalidRequestError` if the process group was made after the connection."""
        if self._given is None and (shard := _group_shard()) not in (None, used):
            raise InvalidRequestError(
                f"the batches so far are for {used}, and torch.distributed has since made this "
                f"process {shard}; {_REMEDY}"
            )

    def check_accelerate(self, dataset: object) -> None:
        """Raises `InvalidRequestError` if a loader that Accelerate has prepared reads a dataset
        that has one of several shards."""
        accelerate = sys.modules.get("accelerate.state")
        is_initialized = getattr(accelerate, "is_initialized", None)  # none during its import
        if accelerate is None or is_initialized is None or not is_initialized():
            return
        reader = accelerate.GradientState().active_dataloader
        while reader is not None and reader is not dataset:
            reader = getattr(reader, "dataset", None)
        if reader is None or accelerate.AcceleratorState().num_processes == 1:
            return
        if (shard := self.for_batches()).world_size > 1:
            raise InvalidRequestError(
                f"FeedDataset for {shard} in a loader that Accelerate has prepared, which would "
                "lose samples: it hands on a part of the ranks' batches; pass the loader to no "
                "accelerator.prepare (with the Trainer of transformers: return the dataset from "
                "get_train_dataloader)"
            )

    def _check_length(self, world_size: int) -> None:
        if self._length_size not in (None, world_size):
            raise InvalidRequestError(
                f"the length of the dataset was reported for a world size of {self._length_size}, "
                f"and it is {world_size} now: a schedule made of that length would be wrong; ask "
                "for it once torch.distributed is initialized (with Lightning: within fit), or "
                "give shard=infeed.Shard(rank, world_size)"
            )


def _group_shard() -> Shard | None:
    """Returns rank and world size of the default process group, None without one."""
    if dist.is_available() and dist.is_initialized():
        return Shard(dist.get_rank(), dist.get_world_size())
    return None


def _several_processes() -> tuple[str, int] | None:
    """Returns the environment variable that shows several processes, and their number.

    The first size that is set counts, also without a rank: Lightning sets `WORLD_SIZE` alone.
    """
    for _, name in LAUNCHERS:
        if (value := os.environ.get(name)) is not None:
            return (name, int(value)) if value.isdecimal() and int(value) > 1 else None
    return None
