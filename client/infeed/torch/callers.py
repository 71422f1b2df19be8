"""Calling libraries: worker processes, second sharding, and second collation.

PyTorch's libraries do not declare how they read a dataset. This module finds them among the
callers, once per iteration.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import get_worker_info

from infeed.shared.errors import InvalidRequestError

_LIBRARIES = ("accelerate", "torch")


def check_callers() -> None:
    """Raises `InvalidRequestError` if the caller splits the batches, makes batches of them, or
    reads them in a worker."""
    if (worker := get_worker_info()) is not None:
        raise InvalidRequestError(
            f"FeedDataset in a worker process of DataLoader (worker {worker.id} of "
            f"{worker.num_workers}): the feed would be read once for each worker, and its state "
            "would be lost; give num_workers=0. The feed prefetches in the background already"
        )
    for kind, caller in _calling_objects():
        if kind == "_IterableDatasetFetcher":
            check_collation(caller)
            continue
        if kind == "IterableDatasetShard":
            processes = getattr(caller, "num_processes", None)
        elif kind == "DataLoaderDispatcher":
            # Unset while its constructor runs, which asks for the state.
            processes = getattr(getattr(caller, "state", None), "num_processes", 1)
        else:
            continue
        if processes != 1:
            raise InvalidRequestError(
                f"FeedDataset under Accelerate's {kind}: its batches would be split again among "
                f"{processes} processes, and each rank has its own already; leave the loader out "
                "of accelerator.prepare(...), and give infeed.torch.FeedDataset or "
                "infeed.torch.connect device=accelerator.device"
            )


def check_collation(fetcher: Any) -> None:
    """Raises `InvalidRequestError` for a loader that would stack the batches, by its default."""
    library = str(getattr(fetcher.collate_fn, "__module__", "")).partition(".")[0]
    if fetcher.auto_collation and library in ("torch", "transformers"):
        raise InvalidRequestError(
            "FeedDataset under a DataLoader with a batch_size, which is 1 by default: it would "
            "stack whole batches, and give each field a further dimension; give DataLoader(..., "
            "batch_size=None), and the size of a batch to FeedDataset(..., batch_size=...). For a "
            "Trainer of transformers, return the dataset from get_train_dataloader"
        )


def _calling_objects() -> Iterator[tuple[str, Any]]:
    """Yields class name and object of each calling method of the libraries, innermost first."""
    frame = sys._getframe(1)
    while (outer := frame.f_back) is not None:
        frame = outer
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in _LIBRARIES and "self" in frame.f_code.co_varnames:
            caller = frame.f_locals.get("self")
            # Accelerate's loaders pretend to be of another class.
            for kind in type(caller).__mro__:
                yield kind.__name__, caller
