"""Tests with Orbax itself: its CheckpointManager with both handlers, and its v1 API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import until
from tests.plugins.frameworks.shared.contract import fake

import infeed

grain = pytest.importorskip("grain")
jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")

import infeed.grain  # noqa: E402 - after the checks

pytestmark = pytest.mark.filterwarnings("default")
"""Orbax warns of its own deprecations."""

STEP = 3


def new_iterator(*, chained: bool = False, **options: Any) -> Any:
    options = {"epochs": 1, "transport": fake(remainder="pad"), **options}
    dataset = infeed.grain.FeedDataset("fake", "fake", ids="_id", **options)
    return iter(dataset.map(lambda element: {"_id": element["_id"]}) if chained else dataset)


def ids(iterator: Any) -> list[int]:
    return [int(number) for batch in iterator for number in batch["_id"] if number >= 0]


def as_saved_on_two(folder: Path) -> None:
    """Renames the file of one process to those that two would have written."""
    (path,) = folder.glob("process_*.json")
    text = path.read_text()
    path.unlink()
    for index in range(2):
        (folder / f"process_{index}-of-2.json").write_text(text)


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("ours", ["neither", "restore", "both"])
def test_checkpoint_manager_restores_model_and_iterator(
    tmp_path: Path, chained: bool, ours: str
) -> None:
    saving = infeed.grain if ours == "both" else grain.checkpoint
    restoring = grain.checkpoint if ours == "neither" else infeed.grain
    source, target = new_iterator(chained=chained), new_iterator(chained=chained)
    for _ in range(STEP):
        next(source)
    model = {"w": np.arange(3.0)}
    with ocp.CheckpointManager(tmp_path) as manager:
        args = ocp.args.Composite(
            model=ocp.args.StandardSave(model), feed=saving.CheckpointSave(source)
        )
        manager.save(STEP, args=args)
    if ours != "neither":
        as_saved_on_two(tmp_path / str(STEP) / "feed")
    with ocp.CheckpointManager(tmp_path) as manager:
        args = ocp.args.Composite(
            model=ocp.args.StandardRestore(model), feed=restoring.CheckpointRestore(target)
        )
        restored = manager.restore(manager.latest_step(), args=args)
    np.testing.assert_array_equal(restored["model"]["w"], model["w"])
    assert restored["feed"] is target
    assert ids(target) == ids(source)


@pytest.mark.parametrize("package", [grain.checkpoint, infeed.grain], ids=["Grain", "infeed"])
def test_restoring_handler_starts_the_prefetch(tmp_path: Path, package: Any) -> None:
    transport = fake()
    source, target = new_iterator(), new_iterator(transport=transport)
    next(source)
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=package.CheckpointSave(source))
        manager.wait_until_finished()
        (file,) = (tmp_path / "1" / "default").glob("process_0-of-1.json")
        assert json.loads(file.read_text()) == source.get_state()
        manager.restore(1, args=package.CheckpointRestore(target))
    until(lambda: transport.streams == 1)
    assert target.feed.first_step == 1


@pytest.mark.parametrize("chained", [False, True])
def test_v1_restores_the_saved_step_on_another_number(tmp_path: Path, chained: bool) -> None:
    v1 = pytest.importorskip("orbax.checkpoint.experimental.v1")
    source, target = new_iterator(chained=chained), new_iterator(chained=chained, batch_size=3)
    for _ in range(STEP):
        next(source)
    wrap = infeed.grain.Checkpointable if chained else lambda iterator: iterator
    assert isinstance(wrap(source), v1.StatefulCheckpointable)
    saving = v1.save_checkpointables_async(
        tmp_path / "saved", {"model": {"w": np.arange(3.0)}, "feed": wrap(source)}
    )
    rest = ids(source)  # the loop goes on while Orbax writes
    saving.result()
    as_saved_on_two(tmp_path / "saved" / "feed")
    loaded = v1.load_checkpointables(
        tmp_path / "saved", {"model": {"w": np.zeros(3)}, "feed": wrap(target)}
    )
    np.testing.assert_array_equal(loaded["model"]["w"], np.arange(3.0))
    assert ids(target) == rest
