"""Checks of foreign loaders, which would lose, repeat or stack a dataset's batches."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torch.utils.data import get_worker_info

from infeed.shared.errors import InvalidRequestError
from infeed_frameworks.torch.shard import ShardChoice


def check_loader(caller: FrameType | None) -> None:
    """Raises `InvalidRequestError` in a worker process of a DataLoader, and where the caller of the
    dataset's `__iter__` would stack its batches."""
    if (worker := get_worker_info()) is not None:
        raise InvalidRequestError(
            f"FeedDataset in a worker process of DataLoader, one of {worker.num_workers}, which "
            "would each read the whole feed; give num_workers=0, since it prefetches already"
        )
    # Only this name reveals a DataLoader's batch size to its dataset.
    if caller is not None and caller.f_locals.get("auto_collation"):
        raise InvalidRequestError(
            "FeedDataset in a DataLoader with a batch size, which would stack whole batches. Use "
            "DataLoader(dataset, batch_size=None), and give the batch size to FeedDataset; for the "
            "Trainer of transformers, return the dataset from get_train_dataloader and "
            "get_eval_dataloader"
        )


def check_accelerate(dataset: object, shard: ShardChoice) -> None:
    """Raises `InvalidRequestError` if a loader that Accelerate has prepared reads a dataset with
    one of several shards."""
    if (
        prepared_loader(dataset) is not None
        and sys.modules["accelerate.state"].AcceleratorState().num_processes > 1
        and (own := shard.for_batches()).world_size > 1
    ):
        raise InvalidRequestError(
            f"FeedDataset for {own} in a loader that Accelerate has prepared, which would lose "
            "samples, since it passes on only some of the ranks' batches; do not pass the loader "
            "to accelerator.prepare (with the Trainer of transformers, return the dataset from "
            "get_train_dataloader)"
        )


def prepared_loader(dataset: object) -> Any:
    """Returns the loader that Accelerate has prepared and that reads a dataset, by the attribute
    that its documentation of `GradientState` names; None without one."""
    accelerate: Any = sys.modules.get("accelerate.state")
    if not getattr(accelerate, "is_initialized", bool)():  # none during its import
        return None
    loader = reader = accelerate.GradientState().active_dataloader
    while reader is not None and reader is not dataset:
        reader = getattr(reader, "dataset", None)
    return None if reader is None else loader
