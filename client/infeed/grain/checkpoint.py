"""Checkpoints of Grain iterators: one JSON file of each process, read on any number of processes.

The names are Grain's, `process_{i}-of-{n}.json`, so its own handlers read these files, and the
other way round. The cursor of a feed is the same on every rank, so where a process finds no file of
its own, because the run had another number of processes, any other one serves. The files are
compared: a Grain transformation that drops elements can bring the ranks to different positions,
from which no other number of ranks can continue.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from etils import epath

from infeed.shared.errors import CursorError

_NAME = re.compile(r"process_(\d+)-of-(\d+)\.json")

_READ_THREADS = 32
"""Files that are read at the same time: an object store takes tens of milliseconds for each."""


class Stateful(Protocol):
    """An iterator with a state that JSON can encode, such as every `grain.DatasetIterator`."""

    def get_state(self) -> dict[str, Any]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...


class PathAwaitingCreation(Protocol):
    """A folder that Orbax is creating."""

    async def await_creation(self) -> Any: ...


class Checkpointable:
    """Orbax's stateful-checkpointable protocol for any Grain iterator over a feed.

    The iterator of a `FeedDataset` has the protocol itself. That of `dataset.map(...)` has Grain's,
    which loads on the same number of processes only: give this one to `ocp.save_checkpointables`
    and `ocp.load_checkpointables` instead.
    """

    def __init__(self, iterator: Stateful) -> None:
        self._iterator = iterator

    async def save(self, directory: PathAwaitingCreation) -> Awaitable[None]:
        """Takes the state now, and returns what writes it into the folder once that exists."""
        return save_of(self._iterator, directory)

    async def load(self, directory: Any) -> Awaitable[None]:
        """Returns what reads the state of a folder and sets it. Raises `CursorError` there."""
        return load_into(self._iterator, directory)


def save_of(iterator: Stateful, directory: PathAwaitingCreation) -> Awaitable[None]:
    """Takes the iterator's state now, and returns what writes it into a folder once that exists."""
    text = json.dumps(iterator.get_state(), indent=4)
    name = state_file_name(*process_index_and_count())

    async def write() -> None:
        path = epath.Path(await directory.await_creation())
        await asyncio.to_thread((path / name).write_text, text)

    return write()


def load_into(iterator: Stateful, directory: str | os.PathLike[str]) -> Awaitable[None]:
    """Returns what reads the state of a folder into the iterator. Raises `CursorError` there."""

    async def read() -> None:
        iterator.set_state(await asyncio.to_thread(read_state, directory))

    return read()


def read_state(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the state that this process saved in a folder, else the one of all other processes.

    Raises `CursorError` if there is none, if one cannot be read, and if the processes saved
    different states and this one saved none.
    """
    folder = epath.Path(directory)
    own = folder / state_file_name(*process_index_and_count())
    if own.exists():
        return _read(own)
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    if not found:
        raise CursorError(
            f"{os.fspath(folder)} has no {own.name}, nor that of another process; give the folder "
            "of the iterator in a checkpoint that was saved"
        )
    found.sort(key=lambda path: [int(number) for number in _NAME.findall(path.name)[0]])
    with ThreadPoolExecutor(_READ_THREADS, "infeed-checkpoint") as pool:
        states = list(pool.map(_read, found))
    for path, state in zip(found, states, strict=True):
        if state != states[0]:
            raise CursorError(
                f"{os.fspath(folder)} has no {own.name}, and the states of {found[0].name} and "
                f"{path.name} differ, so no other number of processes can continue there: the "
                "ranks saved after different steps, or a transformation such as filter took "
                "elements from some ranks only; restore on as many processes as saved"
            )
    return states[0]


def state_file_name(index: int, count: int) -> str:
    """Returns the name of the file of one process of so many."""
    return f"process_{index}-of-{count}.json"


def process_index_and_count() -> tuple[int, int]:
    """Returns this process's number among JAX's, and theirs; 0 of 1 without JAX."""
    try:
        import jax  # noqa: PLC0415 - Grain needs no JAX
    except ImportError:
        return 0, 1
    return jax.process_index(), jax.process_count()


def _read(path: epath.Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CursorError(
            f"{os.fspath(path)} cannot be read: {type(error).__name__}: {error}; restore another "
            "checkpoint"
        ) from error
    if not isinstance(state, dict):
        raise CursorError(
            f"{os.fspath(path)} holds a {type(state).__name__}, not the state of an iterator; "
            "restore another checkpoint"
        )
    return state
