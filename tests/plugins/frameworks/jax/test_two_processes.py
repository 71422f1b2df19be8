"""Tests of one global batch over two real JAX processes, on meshes with replicas."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.conftest import Server
from tests.plugins.frameworks.shared.two_processes import run_two

import infeed
from infeed.shared.spec import Normalize
from infeed.testing import FakeTransport

jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")

from tests.plugins.frameworks.jax.process import ROWS, STEPS, layouts  # noqa: E402

COUNT = 40


def fake() -> FakeTransport:
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (COUNT, 4, 4, 3), np.uint8)
    return FakeTransport({"image": image}, seed=3, finish_transforms=[Normalize("image", 255.0)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both processes save with Orbax."""
    return tmp_path_factory.mktemp("orbax")


@pytest.fixture(scope="module")
def results(folder: Path, new_address: Callable[[], str]) -> list[dict[str, Any]]:
    """What each of the two processes printed."""
    server = Server(fake())
    script = Path(__file__).with_name("process.py")
    try:
        return run_two(script, new_address(), server.address, str(folder))
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("layout", "shards"),
    [
        ("two groups each", [[0, 2], [1, 2]]),
        ("replicas", [[0, 1], [0, 1]]),
        ("one group", [[0, 1], [0, 1]]),
        ("other order", [[1, 2], [0, 2]]),
        ("alternating", [[0, 2], [1, 2]]),
    ],
)
def test_every_device_has_the_rows_of_its_group(
    results: list[dict[str, Any]], layout: str, shards: list[list[int]]
) -> None:
    assert [result[layout]["shard"] for result in results] == shards
    groups = layouts()[layout]
    size = ROWS // len(groups)
    for step in range(STEPS):
        by_device = {**results[0][layout]["steps"][step], **results[1][layout]["steps"][step]}
        assert len(by_device) == 8
        rows = np.full(ROWS, -1)
        for number, devices in enumerate(groups):
            parts = [by_device[str(device.id)] for device in devices]
            assert [begin or 0 for _, begin in parts] == [number * size] * len(parts)
            assert all(ids == parts[0][0] for ids, _ in parts)  # the replicas
            rows[number * size : (number + 1) * size] = parts[0][0]
        expected = fake().sample_ids(3, step * ROWS, ROWS)
        if layout == "alternating":
            # Rank 0 has the groups 0 and 2, and rank 1 has 1 and 3: the same samples, other rows.
            expected = expected.reshape(4, -1)[[0, 2, 1, 3]].ravel()
        np.testing.assert_array_equal(rows, expected)


def test_programs_over_all_devices_have_the_same_result(results: list[dict[str, Any]]) -> None:
    for layout in ("two groups each", "replicas", "alternating"):
        assert results[0][layout]["totals"] == results[1][layout]["totals"]
    with infeed.connect("fake", "fake", batch_size=ROWS, transport=fake()) as feed:
        totals = [float(next(feed)["image"].astype(np.float64).sum()) for _ in range(STEPS)]
    np.testing.assert_allclose(results[0]["replicas"]["totals"], totals, rtol=1e-5)


def test_state_is_the_same_on_every_process(results: list[dict[str, Any]]) -> None:
    first, second = results
    for name in ("two groups each", "replicas"):
        state = first[name]["state"]
        assert second[name]["state"] == state
        assert (
            state["position"] == state["batch_size"] * state["world_size"] * STEPS == STEPS * ROWS
        )


@pytest.mark.filterwarnings("ignore")  # of Orbax
def test_state_restores_on_one_process_with_another_batch(
    results: list[dict[str, Any]], folder: Path
) -> None:
    mesh = jax.make_mesh((2, 4), ("data", "model"))
    sharding = (mesh, jax.sharding.PartitionSpec("data"))
    options = {"sharding": sharding, "global_batch_size": 4, "epochs": 1, "ids": "id"}
    with ocp.CheckpointManager(folder) as manager:
        wanted = ocp.args.Composite(feed=ocp.args.JsonRestore())
        state = manager.restore(STEPS, args=wanted)["feed"]
    assert state == results[1]["two groups each"]["state"]
    with infeed.jax.connect("fake", "fake", state=state, transport=fake(), **options) as batches:
        rest = np.concatenate([batch["id"] for batch in batches])
    done = STEPS * ROWS
    np.testing.assert_array_equal(rest, fake().sample_ids(3, done, COUNT - done))


def test_sharding_on_one_process_needs_a_shard(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert "covers only this process, one of 2" in result["alone"]["error"]


def test_other_shards_than_that_of_the_sharding_are_refused(results: list[dict[str, Any]]) -> None:
    for rank, result in enumerate(results):
        own = re.escape(f"{infeed.Shard(rank, 2)}")
        assert re.search(f"makes this one {own}; leave out shard", result["shard"]["error"])
        assert re.search(f"this process {own}; connect it with", result["feed"]["error"])
