"""Tests of two processes of torch.distributed with the backend gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.client.conftest import Server
from tests.client.torch.fakes import COUNT, fake
from tests.harness.ports import ReservedPort

ROOT = Path(__file__).parents[3]


@pytest.fixture
def address() -> Any:
    server = Server(fake())
    yield server.address
    server.stop()


def train(library: str, address: str, folder: Path, count: int = 2, *state: str) -> list[Any]:
    """Runs as many ranks; returns what each has written."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.client.torch.rank", library, address, folder, *state]
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
            assert [process.wait(timeout=300) for process in processes] == [0] * len(ranks)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


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
    ranks = train(program, address, tmp_path)
    assert [rank["seen"] for rank in ranks] == [[], []]
    for rank in ranks[: 1 if program == "prepared_dispatching" else 2]:
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
