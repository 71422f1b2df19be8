"""Checkpoints of Grain iterators: one JSON file of each process, read on any number of processes.

The names are Grain's, whose own handlers read these files too. The cursor of a feed is the same on
every rank, so where a process finds no file of its own, because the run had another number of
processes, any other one serves. The files are compared: a Grain transformation that drops elements
can bring the ranks to different positions, from which no other number of ranks can continue.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grain
from etils import epath

from infeed.shared.errors import CursorError

_NAME = re.compile(r"process_(\d+)-of-(\d+)\.json")

_READ_THREADS = 32
"""Files that are read at the same time: an object store takes tens of milliseconds for each."""

_saves: Counter[str] = Counter()
"""Saves of this process into each folder, the same on all processes."""


class Checkpointable:
    """Orbax's stateful-checkpointable protocol for any Grain iterator over a feed.

    The iterator of a `FeedDataset` has the protocol itself. The iterator of `dataset.map(...)` has
    Grain's, which loads on the same number of processes only.
    """

    def __init__(self, iterator: grain.DatasetIterator) -> None:
        self._iterator = iterator

    async def save(self, directory: Any) -> Awaitable[None]:
        """Takes the state now, and returns what writes it into a folder that Orbax creates."""
        text, name = json.dumps(self._iterator.get_state(), indent=4), _own_file_name()

        async def write() -> None:
            path = epath.Path(await directory.await_creation())
            await asyncio.to_thread((path / name).write_text, text)
            await _wait_for_all_processes(path)

        return write()

    async def load(self, directory: Any) -> Awaitable[None]:
        """Returns what reads the state of a folder and sets it. Raises `CursorError` there."""

        async def read() -> None:
            self._iterator.set_state(await asyncio.to_thread(read_state, directory))

        return read()


def read_state(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the state that this process saved in a folder, else the one of all other processes.
    Raises `CursorError` if there is none, or if they differ."""
    folder = epath.Path(directory)
    own = folder / _own_file_name()
    if own.exists():
        return _read(own)
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    if not found:
        raise CursorError(
            f"{os.fspath(folder)} has no {own.name}, nor another process's; give the folder "
            "of the iterator in a checkpoint that was saved"
        )
    found.sort(key=lambda path: [int(number) for number in _NAME.findall(path.name)[0]])
    with ThreadPoolExecutor(_READ_THREADS, "infeed-checkpoint") as pool:
        states = list(pool.map(_read, found))
    for path, state in zip(found, states, strict=True):
        if state != states[0]:
            raise CursorError(
                f"{os.fspath(folder)} has no {own.name}, and the states of {found[0].name} and "
                f"{path.name} differ, as after a filter; restore on as many processes as saved"
            )
    return states[0]


async def _wait_for_all_processes(path: epath.Path) -> None:
    """Waits until each process wrote into a folder, which the first one then renames.

    Orbax waits after that only, so that a slower process would miss the folder.
    """
    try:
        import jax  # noqa: PLC0415 - Grain needs no JAX
    except ImportError:
        return
    if not jax.distributed.is_initialized():
        return
    from orbax.checkpoint.experimental.v1 import multihost  # noqa: PLC0415 - Orbax calls this

    # A barrier serves once, and a checkpoint that is overwritten has the folder again.
    _saves[os.fspath(path)] += 1
    operation = f"infeed save {_saves[os.fspath(path)]} of {os.fspath(path)}"
    await multihost.sync_global_processes("written", operation_id=operation)


def _own_file_name() -> str:
    """Returns the name of this process's file, by its number among JAX's; 0 of 1 without JAX."""
    try:
        import jax  # noqa: PLC0415 - Grain needs no JAX
    except ImportError:
        return "process_0-of-1.json"
    return f"process_{jax.process_index()}-of-{jax.process_count()}.json"


def _read(path: epath.Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise CursorError(
            f"{os.fspath(path)} cannot be read: {type(error).__name__}: {error}; restore another "
            "checkpoint"
        ) from error
