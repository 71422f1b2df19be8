"""Calling libraries: worker processes, second sharding, and batches taken ahead of the loop.

PyTorch's libraries do not declare how they read a dataset. This module finds them among the
callers, once per iteration.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import get_worker_info

from infeed.errors import InvalidRequestError

_LIBRARIES = ("accelerate", "lightning", "pytorch_lightning")


def check_callers() -> None:
    """Raises `InvalidRequestError` if the caller splits the batches, or reads them in a worker."""
    if (worker := get_worker_info()) is not None:
        raise InvalidRequestError(
            f"FeedDataset in a worker process of DataLoader (worker {worker.id} of "
            f"{worker.num_workers}): the feed would be read once for each worker, and its state "
            "would be lost; give num_workers=0. The feed prefetches in the background already"
        )
    for kind, caller in _calling_objects():
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


def batches_ahead() -> int:
    """Returns how many batches the caller takes before its loop needs them.

    Lightning takes one, to find the end of a loader without a length. Raises `InvalidRequestError`
    for a version of Lightning that does not show the number.
    """
    for kind, caller in _calling_objects():
        if kind == "_PrefetchDataFetcher":
            try:
                return 0 if caller.length is not None else int(caller.prefetch_batches)
            except AttributeError:
                raise InvalidRequestError(
                    "FeedDataset under Lightning: this version does not show how many batches it "
                    "takes ahead of the training step, so the state would be wrong; give "
                    "FeedDataset(..., ahead=1), or ahead=0 if the feed has a length"
                ) from None
    return 0


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
