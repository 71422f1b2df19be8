"""Tests of the training examples: killed and started again, they end with the same bits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

STEPS = 10
FILES = 44
"""Photos: five batches of eight, and a remainder."""

EPOCHS = ("--epochs", "2", "--save-every", "1")
SCRIPTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "accelerate_images": ("accelerate", (*EPOCHS, "--output")),
    "flax_images": ("flax", ("--steps", f"{STEPS}", "--save-every", "1", "--checkpoint")),
    "jax_images": ("jax", ("--steps", f"{STEPS}", "--checkpoint")),
    "lightning_images": ("lightning", (*EPOCHS, "--output")),
    "torch_images": ("torch", (*EPOCHS, "--checkpoint")),
    "transformers_images": ("transformers", (*EPOCHS, "--output")),
}
"""The package that each needs, and its options up to the path of its checkpoint."""

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


def start(
    script: str, address: str, *options: str | Path, pipeline: str = "pictures"
) -> subprocess.Popen[str]:
    # The tests of the JAX adapter, in the same process, ask for eight devices.
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    env |= {"PYTHONPATH": os.pathsep.join(item for item in sys.path if item)}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    command = [sys.executable, EXAMPLES / f"{script}.py", address, pipeline, *options]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def losses(output: str) -> list[str]:
    """Returns what a script prints for each step: `loss 1.5` or `{'loss': '1.5', ...`."""
    return re.findall(r"\bloss'?:? '?([\d.]+)", output)


@pytest.mark.parametrize("kill_after", [3, 7], ids=["first epoch", "second epoch"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_killed_run_started_again_ends_with_the_same_weights(
    script: str, kill_after: int, address: str, tmp_path: Path
) -> None:
    package, options = SCRIPTS[script]
    pytest.importorskip(package)
    whole = start(script, address, *options, tmp_path / "whole").communicate(timeout=300)[0]
    assert len(losses(whole)) == STEPS

    process, first = start(script, address, *options, tmp_path / "killed"), ""
    assert process.stdout is not None
    for line in process.stdout:
        first += line
        if len(losses(first)) == kill_after:
            break
    process.kill()
    first += process.communicate()[0]  # a later step may be in the checkpoint already
    second = start(script, address, *options, tmp_path / "killed").communicate(timeout=300)[0]
    assert re.search("(continues at sample|continues after step|resumes after step) ", second)
    # The step after the last checkpoint may have run twice.
    # A fast run may have ended before it was killed: the second one has no step then.
    assert losses(whole)[STEPS - len(losses(second)) :] == losses(second)
    assert len(losses(second)) < STEPS
    assert set(losses(first)) | set(losses(second)) == set(losses(whole))
    assert second.splitlines()[-1] == whole.splitlines()[-1]
    assert re.match("weights|parameters", whole.splitlines()[-1])


def test_two_processes_of_jax_train_on_one_global_batch(
    address: str, new_address: Callable[[], str], tmp_path: Path
) -> None:
    pytest.importorskip("jax")
    steps = ("--steps", "3", "--checkpoint")
    job = ("--coordinator", new_address(), "--processes", "2", "--process")
    processes = [
        start("jax_images", address, *steps, tmp_path / "two", *job, str(number))
        for number in range(2)
    ]
    try:
        first, second = (losses(process.communicate(timeout=200)[0]) for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    alone = start("jax_images", address, *steps, tmp_path / "one").communicate(timeout=200)[0]
    # Rounded to four places, where the sums of two devices and of one are the same.
    assert first == second == losses(alone)
    assert len(first) == 3
