"""Tests of the examples in PyTorch: a run that is killed and started again has the same bits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"

SCRIPTS = {"torch_images": "--checkpoint", "transformers_images": "--output"}
"""The option for the checkpoint of each."""

PIPELINES = """
pipelines:
  pictures:
    source: {images: photos, labels: labels.csv}
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - resize: {field: image, size: [64, 64]}
      - random_flip_left_right: {field: image}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 8}
"""

FILES = 44
"""Photos: five batches and a remainder."""

OPTIONS = ("--epochs", "2", "--save-every", "1")


@pytest.fixture
def address(serve: Any, photos: SimpleNamespace, tmp_path: Path) -> str:
    folder = tmp_path / "photos"
    folder.mkdir()
    files = sorted(photos.labels)[:FILES]
    for file in files:
        shutil.copy(photos.folder / file, folder)
    rows = [f"{file},{photos.labels[file]}" for file in files]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]) + "\n")
    return str(serve(PIPELINES).address)


def start(script: str, address: str, checkpoint: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join(item for item in sys.path if item)
    command = [sys.executable, EXAMPLES / f"{script}.py", address, "pictures", *OPTIONS]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **offline}
    return subprocess.Popen(
        [*command, SCRIPTS[script], checkpoint],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        text=True,
    )


def losses(output: str) -> list[str]:
    """Returns what either script prints for each step: `loss 1.5` or `{'loss': '1.5', ...`."""
    return re.findall(r"\bloss'?:? '?([\d.]+)", output)


@pytest.mark.parametrize("kill_after", [3, 7], ids=["first epoch", "second epoch"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_killed_run_that_is_started_again_ends_with_the_same_weights(
    script: str, kill_after: int, address: str, tmp_path: Path
) -> None:
    if script == "transformers_images":
        pytest.importorskip("transformers")
    whole = start(script, address, tmp_path / "whole").communicate(timeout=300)[0]
    assert len(losses(whole)) == 2 * (FILES // 8)

    process, first = start(script, address, tmp_path / "killed"), ""
    assert process.stdout is not None
    for line in process.stdout:
        first += line
        if len(losses(first)) == kill_after:
            break
    process.kill()
    first += process.communicate()[0]  # a later step may be in the checkpoint already
    second = start(script, address, tmp_path / "killed").communicate(timeout=300)[0]
    assert "continues at sample" in second
    # The step after the last checkpoint may have run twice.
    assert losses(whole)[-len(losses(second)) :] == losses(second)
    assert len(losses(second)) < len(losses(whole))
    assert set(losses(first)) | set(losses(second)) == set(losses(whole))
    assert second.splitlines()[-1] == whole.splitlines()[-1]
    assert "weights" in whole.splitlines()[-1]
