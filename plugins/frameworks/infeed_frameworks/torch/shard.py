"""Shard of a feed: the user's, or the rank in `torch.distributed`."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from infeed.cursor import Shard
from infeed.ranks import evidence_of_ranks
from infeed.shared.errors import InvalidRequestError

_REMEDY = "initialize torch.distributed before it, or give shard=infeed.Shard(rank, world_size)"


class ShardChoice:
    """Chooses the shard of a dataset's feeds, as late as possible: training programs create a
    dataset, and ask for its length, before they initialize `torch.distributed`."""

    def __init__(self, given: Shard | None) -> None:
        """Takes the shard of the user; None: the default process group's."""
        self._given = given
        self._chosen: Shard | None = None
        """The shard of the first batch, which stays if the group ends afterwards."""

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy in another process needs, whose rank may differ."""
        return {**vars(self), "_chosen": None}

    def for_batches(self) -> Shard:
        """Returns the shard for a feed. Raises `InvalidRequestError` if it is not yet known."""
        if self._given is not None:
            return self._given
        shard, size = _group_shard() or self._chosen, self.for_length()
        # Lightning sets only WORLD_SIZE.
        evidence = evidence_of_ranks() or (f"WORLD_SIZE={size}" if size > 1 else "")
        if shard is None and evidence:
            raise InvalidRequestError(
                "no shard for the first batch: torch.distributed is not initialized, and "
                f"{evidence}, so each process would read all batches; {_REMEDY}"
            )
        self._chosen = shard or Shard()
        return self._chosen

    def for_length(self) -> int:
        """Returns the world size for a length: `WORLD_SIZE` before the group exists."""
        if (shard := self._given or _group_shard() or self._chosen) is not None:
            return shard.world_size
        size = os.environ.get("WORLD_SIZE", "")
        return max(1, int(size)) if size.isdecimal() else 1

    def check_unchanged(self, used: Shard) -> None:
        """Raises `InvalidRequestError` if the process group was made after the connection."""
        if self._given is None and (shard := _group_shard()) not in (None, used):
            raise InvalidRequestError(
                f"the batches so far are for {used}, but torch.distributed has since made this "
                f"process {shard}; {_REMEDY}"
            )


def _group_shard() -> Shard | None:
    """Returns rank and world size of the default process group, None without one."""
    if dist.is_available() and dist.is_initialized():
        return Shard(dist.get_rank(), dist.get_world_size())
    return None
