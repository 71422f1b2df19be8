"""Tests of checkpoints: Orbax's protocol, the files of several processes, and their fallback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plugins.frameworks.shared.contract import fake

import infeed

grain = pytest.importorskip("grain")
jax = pytest.importorskip("jax")

from infeed.grain import Checkpointable, FeedDataset, read_state  # noqa: E402 - after the checks

BATCH = 2
"""Slots of each rank."""


class Creation:
    """The folder of a checkpoint, which Orbax creates in the background."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.created = asyncio.Event()

    async def await_creation(self) -> Path:
        await self.created.wait()
        self.path.mkdir(exist_ok=True)
        return self.path


def rank_iterator(rank: int, world_size: int, batch_size: int = BATCH) -> Any:
    options = {"epochs": 1, "batch_size": batch_size, "transport": fake(remainder="pad")}
    shard = infeed.Shard(rank, world_size)
    return iter(FeedDataset("fake", "fake", ids="_id", mask="_mask", shard=shard, **options))


def rest_of(iterators: list[Any]) -> list[int]:
    """Returns the sample ids that all ranks still deliver, sorted."""
    ids = np.concatenate([batch["_id"].ravel() for rank in iterators for batch in rank])
    return sorted(ids[ids >= 0].tolist())


def save(iterator: Any, folder: Path) -> None:
    async def run() -> None:
        creation = Creation(folder)
        write = await iterator.save(creation)
        creation.created.set()
        await write

    asyncio.run(run())


def load(iterator: Any, folder: Path) -> Any:
    async def run() -> None:
        await (await iterator.load(folder))

    asyncio.run(run())
    return iterator


@pytest.fixture
def as_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A function that makes JAX report another process's number."""

    def become(index: int, count: int) -> None:
        monkeypatch.setattr(jax, "process_index", lambda: index)
        monkeypatch.setattr(jax, "process_count", lambda: count)

    return become


@pytest.fixture
def saved_on_two(
    tmp_path: Path, as_process: Callable[[int, int], None]
) -> tuple[Path, Callable[[], list[int]]]:
    """The folder of two ranks after three steps, and the ids that remain."""
    iterators = [rank_iterator(rank, 2) for rank in range(2)]
    for rank, iterator in enumerate(iterators):
        for _ in range(3):
            next(iterator)
        as_process(rank, 2)
        save(iterator, tmp_path / "feed")
    return tmp_path / "feed", lambda: rest_of(iterators)


def test_files_have_the_names_and_content_of_grain(saved_on_two: Any) -> None:
    folder, _ = saved_on_two
    names = [f"process_{rank}-of-2.json" for rank in range(2)]
    assert sorted(path.name for path in folder.iterdir()) == names
    states = [json.loads((folder / name).read_text()) for name in names]
    assert states[0] == states[1]
    assert states[0]["position"] == 3 * 2 * BATCH


@pytest.mark.parametrize(("world_size", "batch_size"), [(1, 3), (1, 4), (2, 1), (3, 2)])
def test_saved_on_two_restores_on_any_number(
    saved_on_two: Any,
    as_process: Callable[[int, int], None],
    world_size: int,
    batch_size: int,
) -> None:
    folder, rest = saved_on_two
    restored = []
    for rank in range(world_size):
        as_process(rank, world_size)
        restored.append(load(rank_iterator(rank, world_size, batch_size), folder))
    expected = rest()
    assert len(expected) == 14
    assert rest_of(restored) == expected


def test_state_is_taken_before_the_folder_exists(tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    iterator = rank_iterator(0, 1)

    async def run() -> None:
        creation = Creation(folder)
        next(iterator)
        write = asyncio.ensure_future(await iterator.save(creation))
        next(iterator)
        await asyncio.sleep(0)
        assert not folder.exists()
        creation.created.set()
        await write

    asyncio.run(run())
    assert read_state(folder)["position"] == BATCH


def test_chain_of_grain_restores_on_another_number(
    tmp_path: Path, as_process: Callable[[int, int], None]
) -> None:
    def chain(rank: int, world_size: int) -> Any:
        options = {"epochs": 1, "batch_size": BATCH, "transport": fake(remainder="pad")}
        dataset = FeedDataset(
            "fake", "fake", ids="_id", mask="_mask", shard=infeed.Shard(rank, world_size), **options
        )
        mapped = dataset.map(lambda element: {"_id": element["_id"]})
        return iter(grain.experimental.ThreadPrefetchIterDataset(mapped, prefetch_buffer_size=2))

    iterators = [chain(rank, 2) for rank in range(2)]
    for rank, iterator in enumerate(iterators):
        next(iterator)
        as_process(rank, 2)
        save(Checkpointable(iterator), tmp_path / "feed")
    as_process(0, 1)
    with pytest.raises(ValueError, match=r"process_0-of-1\.json does not exist"):
        load(chain(0, 1), tmp_path / "feed")  # Grain alone
    restored = chain(0, 1)
    load(Checkpointable(restored), tmp_path / "feed")
    assert rest_of([restored]) == rest_of(iterators)


def test_different_states_are_not_used_by_another_number(
    tmp_path: Path, as_process: Callable[[int, int], None]
) -> None:
    for index in range(12):
        state = {"position": 4 + (index in {2, 10})}
        (tmp_path / f"process_{index}-of-12.json").write_text(json.dumps(state))
    as_process(0, 1)
    with pytest.raises(infeed.CursorError, match=r"process_0-of-12.* and process_2-of-12"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"has no process_0-of-1\.json and no file of another process"),
        ("", r"process_1-of-2\.json cannot be read: JSONDecodeError"),
        ("[1]", r"process_1-of-2\.json cannot be read: TypeError"),
    ],
)
def test_folder_without_a_state_is_an_error(tmp_path: Path, text: str | None, message: str) -> None:
    (tmp_path / "other.json").write_text("{}")
    if text is not None:
        (tmp_path / "process_1-of-2.json").write_text(text)
    with pytest.raises(infeed.CursorError, match=message):
        read_state(tmp_path)
