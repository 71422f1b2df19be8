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
pytest.importorskip("accelerate")

from tests.client.conftest import Server
from tests.client.torch.fakes import COUNT, fake
from tests.harness.ports import ReservedPort

import infeed

ROOT = Path(__file__).parents[3]


@pytest.fixture
def address() -> Any:
    server = Server(fake())
    yield server.address
    server.stop()


def train(address: str, world_size: int, rendezvous: Path, *state: str) -> list[Any]:
    """Returns what each rank has printed."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    # Accelerate wants an address, and then uses the process group that there is.
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **master}
    command = [sys.executable, "-m", "tests.client.torch.trainer"]
    ranks = [
        subprocess.Popen(
            [*command, address, str(rank), str(world_size), str(rendezvous), *state],
            env={**environment, "RANK": str(rank), "WORLD_SIZE": str(world_size)},
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(world_size)
    ]
    try:
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * world_size
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers"])
def test_dataset_made_before_the_group_has_the_shard_of_each_rank(
    library: str, address: str, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    command = [sys.executable, "-m", "tests.client.torch.late_group", library, address, tmp_path]
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    ranks: list[dict[str, str]] = [{}]  # Lightning starts the second one
    if library != "lightning":
        ranks = [
            {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)
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
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    steps = -(-COUNT // 8)
    assert first["lengths"] == second["lengths"]
    assert set(first["lengths"]) <= {steps, None}
    batches = [list(chain(*pair)) for pair in zip(first["seen"], second["seen"], strict=True)]
    assert len(batches) == 2 * steps
    for epoch in (batches[:steps], batches[steps:]):
        assert sorted(i for i in chain(*epoch) if i >= 0) == list(range(COUNT))


def test_two_ranks_share_each_epoch_and_one_resumes_their_state(
    address: str, tmp_path: Path
) -> None:
    ranks = train(address, 2, tmp_path / "two")
    assert [shard for _, _, shard in ranks] == [vars(infeed.Shard(rank, 2)) for rank in range(2)]
    assert ranks[0][1] == ranks[1][1]  # the same weights
    steps = -(-COUNT // 8)
    batches = [list(chain(*pair)) for pair in zip(ranks[0][0], ranks[1][0], strict=True)]
    assert len(batches) == 2 * steps
    epochs = [list(chain(*batches[e * steps :][:steps])) for e in range(2)]
    for epoch in epochs:
        assert sorted(i for i in epoch if i >= 0) == list(range(COUNT))
    (alone,) = train(address, 1, tmp_path / "one", f"{tmp_path}/two.state")
    resumed = [i for i in chain(*alone[0]) if i >= 0]
    expected = [i for i in chain(*batches[2:]) if i >= 0]
    assert resumed == expected
