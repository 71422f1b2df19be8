"""Checkpoints of Grain iterators: one JSON file per process, readable on any number of processes.

The names are Grain's, so its own handlers can read these files too. A feed's cursor is the same on
every rank: a process without a file, because the run had another number of processes, reads any
other. It compares them all: after a Grain transformation that drops elements, ranks may be at
different positions, and another number of ranks cannot continue.
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
"""Files read concurrently: each takes tens of milliseconds in an object store."""

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
        """Takes the state now and returns a function that writes it into the folder of Orbax."""
        text, name = json.dumps(self._iterator.get_state(), indent=4), _own_file_name()

        async def write() -> None:
            path = epath.Path(await directory.await_creation())
            await asyncio.to_thread((path / name).write_text, text)
            await _wait_for_all_processes(path)

        return write()

    async def load(self, directory: Any) -> Awaitable[None]:
        """Returns a function that reads and sets the state of a folder, or raises `CursorError`."""

        async def read() -> None:
            self._iterator.set_state(await asyncio.to_thread(read_state, directory))

        return read()


def read_state(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the state that this process saved in a folder, else the others' common state.
    Raises `CursorError` if there is none or they differ."""
    folder = epath.Path(directory)
    own = folder / _own_file_name()
    if own.exists():
        return _read(own)
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    if not found:
        raise CursorError(
            f"{os.fspath(folder)} has no {own.name} and no file of another process; give the "
            "iterator's folder in a saved checkpoint"
        )
    found.sort(key=lambda path: [int(number) for number in _NAME.findall(path.name)[0]])
    with ThreadPoolExecutor(_READ_THREADS, "infeed-checkpoint") as pool:
        states = list(pool.map(_read, found))
    for path, state in zip(found, states, strict=True):
        if state != states[0]:
            raise CursorError(
                f"{os.fspath(folder)} has no {own.name}, and the states of {found[0].name} and "
                f"{path.name} differ, as after a filter; restore on as many processes as before"
            )
    return states[0]


async def _wait_for_all_processes(path: epath.Path) -> None:
    """Waits until each process has written into a folder, which the first one then renames.

    Orbax waits only later, so a slower process would miss the folder.
    """
    try:
        import jax  # noqa: PLC0415 - Grain needs no JAX
    except ImportError:
        return
    if not jax.distributed.is_initialized():
        return
    from orbax.checkpoint.experimental.v1 import multihost  # noqa: PLC0415 - Orbax calls this

    # A barrier works once, but overwriting a checkpoint uses its folder again.
    _saves[os.fspath(path)] += 1
    operation = f"infeed save {_saves[os.fspath(path)]} of {os.fspath(path)}"
    await multihost.sync_global_processes("written", operation_id=operation)


def _own_file_name() -> str:
    """Returns this process's file name, from its number in JAX; process 0 of 1 without JAX."""
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
