"""Tests of two real JAX processes that share a feed and save it, and of one that continues it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Server
from tests.plugins.frameworks.shared.contract import COUNT, fake
from tests.plugins.frameworks.shared.two_processes import run_two

pytest.importorskip("grain")
pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")

from tests.plugins.frameworks.grain.process import BATCH_SIZE, STEPS  # noqa: E402 - after the checks

import infeed.grain  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
"""Orbax warns of its own deprecations."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = Server(fake())
    yield running.address
    running.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both processes save with Orbax."""
    return tmp_path_factory.mktemp("orbax")


@pytest.fixture(scope="module")
def seen(server: str, folder: Path, new_address: Callable[[], str]) -> Counter[int]:
    """The ids that two processes had before they saved, of disjoint shares."""
    script = Path(__file__).with_name("process.py")
    results = run_two(script, new_address(), server, str(folder))
    assert [result["shard"] for result in results] == [[0, 2], [1, 2]]
    ids = Counter(results[0]["ids"] + results[1]["ids"])
    assert len(ids) == ids.total() == STEPS * 2 * BATCH_SIZE
    for feed in (folder / "v1" / "feed", folder / "handler" / "1" / "feed"):
        states = {path.name for path in feed.glob("process_*.json")}
        assert states == {"process_0-of-2.json", "process_1-of-2.json"}, feed
    return ids


@pytest.mark.parametrize("way", ["handler", "v1"])
def test_feed_saved_by_two_processes_continues_in_one(
    way: str, server: str, folder: Path, seen: Counter[int]
) -> None:
    options: Any = {"batch_size": 5, "epochs": 2, "remainder": "pad", "mask": "_mask"}
    iterator = iter(infeed.grain.FeedDataset(server, "fake", ids="_id", **options))
    if way == "v1":
        from orbax.checkpoint.experimental import v1

        v1.load_checkpointables(folder / "v1", {"feed": iterator})
    else:
        with ocp.CheckpointManager(folder / "handler") as manager:
            restore = infeed.grain.CheckpointRestore(iterator)
            manager.restore(1, args=ocp.args.Composite(feed=restore))
    rest = Counter(int(number) for batch in iterator for number in batch["_id"] if number >= 0)
    assert seen + rest == Counter(dict.fromkeys(range(COUNT), 2))
