"""Calling libraries: worker processes, second sharding, and batches taken ahead of the loop.

PyTorch's libraries do not declare how they read a dataset. This module finds them among the
callers, once per iteration.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import default_collate, get_worker_info

from infeed.errors import InvalidRequestError
from infeed.torch.saved_pass import is_state

_LIBRARIES = ("accelerate", "lightning", "pytorch_lightning", "torch")


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
    if fetcher.auto_collation and fetcher.collate_fn is default_collate:
        raise InvalidRequestError(
            "FeedDataset under a DataLoader with a batch_size, which is 1 by default: it would "
            "stack whole batches, and give each field a further dimension; give DataLoader(..., "
            "batch_size=None), and the size of a batch to FeedDataset(..., batch_size=...)"
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


def unrestored_state() -> Mapping[str, Any] | None:
    """Returns the state of a checkpoint that Lightning has read and does not restore, else None.

    It restores no loader at the end of an epoch, as in the checkpoints that it writes by default.
    Raises `InvalidRequestError` if it has states of several datasets.
    """
    for kind, caller in _calling_objects():
        if kind == "_EvaluationLoop":  # the checkpoint has the states of training alone
            return None
        if kind == "_FitLoop":
            states = [*_dataset_states(getattr(caller, "_combined_loader_states_to_load", None))]
            if len(states) > 1:
                raise InvalidRequestError(
                    f"Lightning's checkpoint has the states of {len(states)} datasets, and "
                    "Lightning has restored none of them, as it does at the end of an epoch; give "
                    "each its own: FeedDataset(..., state=...)"
                )
            return states[0] if states else None
    return None


def _dataset_states(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the states of datasets within those of loaders."""
    if isinstance(value, Mapping) and not is_state(value):
        value = [*value.values()]
    if isinstance(value, Mapping):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _dataset_states(each)


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
