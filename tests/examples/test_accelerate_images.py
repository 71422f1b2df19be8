"""`accelerate_images.py` on two processes: killed and resumed, each epoch has each photo once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.ports import ReservedPort

EXAMPLE = Path(__file__).parents[2] / "examples" / "accelerate_images.py"

FILES, BATCH_SIZE, EPOCHS, RANKS = 48, 8, 2, 2
STEPS = FILES // (BATCH_SIZE * RANKS)
"""Steps of an epoch."""

PIPELINES = f"""
pipelines:
  pictures:
    source: {{images: photos, labels: labels.csv}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - resize: {{field: image, size: [64, 64]}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: {BATCH_SIZE}}}
"""

RECORDING = """
import json, os, runpy, sys
from infeed.torch import FeedDataset

log = open(f"{sys.argv[1]}-{os.environ['RANK']}", "w", buffering=1)
following = FeedDataset.__next__

def recorded(dataset):
    batch = following(dataset)
    log.write(json.dumps(batch["label"].tolist()) + "\\n")
    return batch

FeedDataset.__next__ = recorded
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def address(serve: Any, photos: SimpleNamespace, tmp_path: Path) -> str:
    """Serves photos, of which each has a label of its own."""
    (tmp_path / "photos").mkdir()
    files = sorted(photos.labels)[:FILES]
    for file in files:
        shutil.copy(photos.folder / file, tmp_path / "photos")
    rows = [f"{file},{label}" for label, file in enumerate(files)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]) + "\n")
    return str(serve(PIPELINES).address)


def train(address: str, folder: Path, log: Path, kill_after: int | None = None) -> str:
    """Runs both ranks; returns what the first one prints, up to that step if they are killed."""
    options = ["--epochs", f"{EPOCHS}", "--save-every", "1", "--output", str(folder)]
    command = [sys.executable, "-c", RECORDING, log, EXAMPLE, address, "pictures", *options]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(item for item in sys.path if item)}
    env |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    printed = ""
    with ReservedPort() as port:
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.number), "WORLD_SIZE": "2"}
        processes = [
            subprocess.Popen(
                command,
                env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        try:
            assert processes[0].stdout is not None
            for line in processes[0].stdout:
                printed += line
                if f"step {kill_after}:" in line:
                    break
            else:
                assert [process.wait(timeout=300) for process in processes] == [0] * RANKS
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    return printed


def steps_of(log: Path) -> list[list[int]]:
    """Returns the labels of each step that both ranks have begun."""
    ranks = [Path(f"{log}-{rank}").read_text().splitlines() for rank in range(RANKS)]
    return [json.loads(first) + json.loads(second) for first, second in zip(*ranks, strict=False)]


@pytest.mark.parametrize("kill_after", [2, STEPS + 1], ids=["first epoch", "second epoch"])
def test_each_epoch_of_two_ranks_has_each_photo_once(
    kill_after: int, address: str, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    train(address, tmp_path / "run", tmp_path / "first", kill_after)
    printed = train(address, tmp_path / "run", tmp_path / "second")
    (done,) = map(int, re.findall(r"continues after step (\d+)", printed))
    assert 0 < done < EPOCHS * STEPS
    steps = steps_of(tmp_path / "first")[:done] + steps_of(tmp_path / "second")
    assert len(steps) == EPOCHS * STEPS
    for epoch in (steps[:STEPS], steps[STEPS:]):
        assert sorted(sum(epoch, [])) == list(range(FILES))  # noqa: RUF017
    assert steps[:STEPS] != steps[STEPS:]
