"""Tests of two processes of JAX that save, and one or three that continue: the ids are exact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.adapters.contract import COUNT, fake
from tests.client.conftest import Server
from tests.harness.ports import ReservedPort

pytest.importorskip("grain")
pytest.importorskip("jax")
pytest.importorskip("orbax.checkpoint")

ROOT = Path(__file__).parents[3]

STEPS = 2
BATCH_SIZE = 3

BOTH_EPOCHS = Counter(dict.fromkeys(range(COUNT), 2))


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    server = Server(fake())
    yield server.address
    server.stop()


def train(target: str, folder: Path, count: int, **job: Any) -> list[dict[str, Any]]:
    """Runs as many processes of one training; returns what each prints."""
    job = {"target": target, "folder": str(folder), "steps": None, "restore": None, **job}
    with ReservedPort() as port:
        return run({**job, "count": count, "coordinator": port.address})


def run(job: dict[str, Any]) -> list[dict[str, Any]]:
    path = os.pathsep.join(str(ROOT / part) for part in ("client", "server", ""))
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.client.grain.trainer", json.dumps(job | {"index": i})],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        )
        for i in range(job["count"])
    ]
    try:
        results = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, stderr) in zip(processes, results, strict=True):
        assert process.returncode == 0, stderr
    return [json.loads(stdout.splitlines()[-1]) for stdout, _ in results]


@pytest.fixture(scope="module")
def saved(target: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[int]]:
    """The folder of two processes that saved after two steps, and the ids that they had."""
    folder = tmp_path_factory.mktemp("saved")
    ranks = train(target, folder, 2, steps=STEPS, batch_size=BATCH_SIZE)
    seen = Counter(ranks[0]["ids"] + ranks[1]["ids"])
    assert len(seen) == seen.total() == STEPS * 2 * BATCH_SIZE
    assert ranks[0]["total"] == ranks[1]["total"] == sum(seen.elements())
    for part in ("handler/1/feed", "v1/feed"):
        names = sorted(path.name for path in (folder / part).glob("process_*"))
        assert names == ["process_0-of-2.json", "process_1-of-2.json"]
    return folder, seen


@pytest.mark.parametrize(
    ("way", "count", "batch_size"),
    [("v1", 1, 5), ("handler", 1, 4), ("v1", 3, 2)],
)
def test_saved_on_two_processes_continues_on_another_number(
    target: str, saved: tuple[Path, Counter[int]], way: str, count: int, batch_size: int
) -> None:
    folder, seen = saved
    ranks = train(target, folder, count, restore=way, batch_size=batch_size)
    rest = Counter(number for rank in ranks for number in rank["ids"])
    assert seen + rest == BOTH_EPOCHS
    assert {rank["total"] for rank in ranks} == {sum(BOTH_EPOCHS.elements())}
