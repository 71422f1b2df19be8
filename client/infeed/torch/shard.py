"""Rank and world size of `torch.distributed`, as the default shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from infeed.cursor import Shard

if TYPE_CHECKING:
    from infeed.client import ConnectOptions


def with_shard(options: ConnectOptions) -> ConnectOptions:
    """Returns a copy of the options, with the shard of the default process group.

    It is unchanged if the options have a shard, or if `torch.distributed` is not initialized.
    """
    result = options.copy()
    if options.get("shard") is None and dist.is_available() and dist.is_initialized():
        result["shard"] = Shard(dist.get_rank(), dist.get_world_size())
    return result
