"""Tests of two processes of torch.distributed with the backend gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.client.conftest import Server
from tests.harness.ports import ReservedPort
from tests.plugins.frameworks.torch.fakes import COUNT, fake

ROOT = Path(__file__).parents[4]


@pytest.fixture
def address() -> Any:
    server = Server(fake())
    yield server.address
    server.stop()


def train(
    library: str,
    address: str,
    folder: Path,
    count: int = 2,
    *state: str,
    may_fail: Sequence[int] = (),
    program: str = "rank",
) -> list[Any]:
    """Runs as many ranks; returns what each has written. A rank in `may_fail` may end anyhow."""
    folder.mkdir(exist_ok=True)
    module = f"tests.plugins.frameworks.torch.{program}"
    command = [sys.executable, "-m", module, library, address, folder, *state]
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    ranks: list[dict[str, str]] = [{}]  # Lightning starts the second one
    if library != "lightning":
        ranks = [
            {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
            for rank in range(count)
        ]
    with ReservedPort() as port:
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.number)}
        processes = [subprocess.Popen(command, env=environment | rank, cwd=ROOT) for rank in ranks]
        try:
            exits = [process.wait(timeout=300) for process in processes]
            assert [x for rank, x in enumerate(exits) if rank not in may_fail] == [0] * (
                len(ranks) - len(may_fail)
            )
        finally:
            for process in processes:
                process.kill()
                process.wait()
    files = [folder / f"{rank}.json" for rank in range(count)]
    return [json.loads(path.read_text()) for path in files if path.exists()]


STEPS = -(-COUNT // 8)


def steps_of(ranks: list[Any]) -> list[list[int]]:
    """Returns the ids of each step over both ranks; checks that each epoch has every sample."""
    steps = [list(chain(*pair)) for pair in zip(*(rank["seen"] for rank in ranks), strict=True)]
    assert len(steps) == 2 * STEPS
    for epoch in (steps[:STEPS], steps[STEPS:]):
        assert sorted(i for i in chain(*epoch) if i >= 0) == list(range(COUNT))
    return steps


@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers"])
def test_two_ranks_of_a_library_share_each_epoch(
    library: str, address: str, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    ranks = train(library, address, tmp_path)
    assert all(set(rank["lengths"]) == {STEPS} for rank in ranks)
    steps_of(ranks)


@pytest.mark.parametrize("program", ["no_shard", "prepared", "prepared_dispatching"])
def test_loader_that_accelerate_would_cut_is_refused(
    program: str, address: str, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    # Rank 0 alone reads a loader whose batches Accelerate dispatches; its end fails the other one,
    # which gloo may abort.
    may_fail = [1] if program == "prepared_dispatching" else []
    ranks = train(program, address, tmp_path, may_fail=may_fail)
    for rank in ranks[: 2 - len(may_fail)]:
        assert rank["seen"] == []
        assert "in a loader that Accelerate has prepared" in rank["error"]


def test_two_ranks_share_each_epoch_and_one_resumes_their_state(
    address: str, tmp_path: Path
) -> None:
    ranks = train("torch", address, tmp_path / "two")
    assert ranks[0]["weights"] == ranks[1]["weights"]
    steps = steps_of(ranks)
    (alone,) = train("torch", address, tmp_path / "one", 1, str(tmp_path / "two" / "state"))
    resumed = [i for i in chain(*alone["seen"]) if i >= 0]
    assert resumed == [i for i in chain(*steps[2:]) if i >= 0]
