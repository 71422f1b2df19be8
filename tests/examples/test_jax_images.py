"""The training in plain JAX: interrupted and resumed, it is the uninterrupted one bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

SCRIPT = Path(__file__).parents[2] / "examples" / "jax_images.py"
STEPS = 6


@pytest.fixture
def target(example: Any, draw_image: Any) -> str:
    """The address of a server of 22 JPEGs, which no number of whole batches has."""
    import tensorflow as tf

    pictures = example("folder_csv_labels_augmented")
    (pictures.data / "pictures").mkdir()
    rows = ["file,label"]
    for number in range(22):
        image = draw_image(number, 60 + number, 80)
        encoded = tf.io.encode_jpeg(image).numpy()
        (pictures.data / "pictures" / f"{number:02}.jpg").write_bytes(encoded)
        rows.append(f"{number:02}.jpg,{number % 7}")
    (pictures.data / "labels.csv").write_text("\n".join(rows) + "\n")
    pictures.connect().close()
    return str(pictures.address)


def start(target: str, checkpoint: Path, *options: str) -> subprocess.Popen[str]:
    arguments = [target, "pictures", "--checkpoint", str(checkpoint), *options]
    command = [sys.executable, str(SCRIPT), *arguments]
    # The tests of the adapter, in the same process, ask for eight devices.
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Returns the lines that the process has printed."""
    try:
        output, _ = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    return [line for line in output.splitlines() if not line.startswith("[Gloo]")]


def test_killed_training_resumes_bit_for_bit(target: str, tmp_path: Path) -> None:
    steps = ("--steps", str(STEPS))
    *losses, digest = finish(start(target, tmp_path / "whole.pickle", *steps))
    assert len(losses) == STEPS

    killed = start(target, tmp_path / "killed.pickle", "--steps", "5")
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.startswith("step 3:"):
            break
    killed.kill()
    killed.communicate()

    first, *rest, other_digest = finish(start(target, tmp_path / "killed.pickle", *steps))
    assert first in {f"resumes after step {step}" for step in (2, 3, 4, 5)}
    assert rest == losses[STEPS - len(rest) :]
    assert other_digest == digest


def test_two_processes_train_on_one_global_batch(
    target: str, new_address: Callable[[], str], tmp_path: Path
) -> None:
    coordinator = new_address()
    processes = [
        start(
            target,
            tmp_path / "two.pickle",
            *("--steps", "3", "--coordinator", coordinator),
            *("--processes", "2", "--process", str(number)),
        )
        for number in range(2)
    ]
    try:
        first, second = map(finish, processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert first == second
    assert len(first) == 4
    alone = finish(start(target, tmp_path / "one.pickle", "--steps", "3"))
    # Rounded to four places, where the sums of two devices and of one are the same.
    assert first[:3] == alone[:3]
