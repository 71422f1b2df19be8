"""Shard of a feed: the one that was given, or that of `torch.distributed` at the first batch."""

from __future__ import annotations

import os

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
        """Takes the shard of the user; None: that of the default process group."""
        self.given = given
        self._chosen: Shard | None = None
        """The shard of the first batch, which a group that ends afterwards leaves as it is."""
        self._reported: int | None = None
        """The world size of the lengths that were reported."""

    def for_batches(self) -> Shard:
        """Returns the shard for a feed. Raises `InvalidRequestError` if it is not known yet, or if
        a length was reported for another world size."""
        if self.given is not None:
            return self.given
        shard = _group_shard() or self._chosen or Shard()
        if _group_shard() is None and self._chosen is None and (several := _several_processes()):
            name, count = several
            raise InvalidRequestError(
                f"no shard for the first batch: torch.distributed is not initialized, but {name} "
                f"is {count}, so each of {count} processes would read all batches; {_REMEDY}"
            )
        self._check_reported(shard.world_size)
        self._chosen = shard
        return shard

    def for_length(self) -> Shard:
        """Returns a shard of the world size for a length, which does not depend on the rank. Raises
        `InvalidRequestError` if a length was reported for another one."""
        if self.given is not None:
            return self.given
        several = _several_processes()
        shard = _group_shard() or self._chosen or Shard(0, several[1] if several else 1)
        self._check_reported(shard.world_size)
        self._reported = shard.world_size
        return shard

    def has_changed(self, used: Shard) -> bool:
        """Returns whether a feed has another shard than the process group, if there is one."""
        return self.given is None and _group_shard() not in (None, used)

    def for_copy(self) -> ShardChoice:
        """Returns the choice of a copy in another process, which may have another rank."""
        result = ShardChoice(self.given)
        result._reported = self._reported
        return result

    def _check_reported(self, world_size: int) -> None:
        if self._reported not in (None, world_size):
            raise InvalidRequestError(
                f"the length of the dataset was reported for a world size of {self._reported}, and "
                f"it is {world_size} now: a schedule made of that length would be wrong; ask for "
                "it once torch.distributed is initialized (with Lightning: within fit), or give "
                "shard=infeed.Shard(rank, world_size)"
            )


def changed_shard(used: Shard) -> InvalidRequestError:
    """Returns the error of a process group that was initialized after the first batch."""
    return InvalidRequestError(
        f"the batches so far are those of {used}, and torch.distributed has since made this "
        f"process {_group_shard()}; {_REMEDY}"
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
