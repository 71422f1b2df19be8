"""The training with Flax: interrupted and resumed, it ends with the bits of the whole run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grain")
pytest.importorskip("flax")
pytest.importorskip("orbax.checkpoint")

SCRIPT = Path(__file__).parents[2] / "examples" / "flax_images.py"


def save_jpegs(folder: Path, count: int, draw_image: Any) -> None:
    import tensorflow as tf

    folder.mkdir()
    for number in range(count):
        image = draw_image(number, 100 + number, 140 - number)
        name = f"{('cat', 'dog')[number % 2]}.{number}.jpg"
        (folder / name).write_bytes(tf.io.encode_jpeg(image).numpy())


def start(address: str, checkpoint: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), address, "pets", "--classes", "2", "--steps", "20"]
    return subprocess.Popen(
        [*command, "--save-every", "3", "--checkpoint", str(checkpoint)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_training_ends_with_the_same_weights(
    example: Any, draw_image: Any, tmp_path: Path
) -> None:
    pets = example("folder_file_name_labels")
    save_jpegs(pets.data / "pets", 40, draw_image)
    with pets.connect():
        address = pets.address
    whole = start(address, tmp_path / "whole").communicate(timeout=300)[0].splitlines()
    assert len(whole) == 21

    seen = []
    with start(address, tmp_path / "killed") as killed:
        assert killed.stdout is not None
        for line in killed.stdout:
            seen.append(line.rstrip())
            if line.startswith("step 8"):  # waits for the save of step 3, not for that of step 6
                killed.send_signal(signal.SIGKILL)
    assert seen[:8] == whole[:8]

    resumed = start(address, tmp_path / "killed").communicate(timeout=300)[0].splitlines()
    step = int(resumed[0].removeprefix("continues after step "))
    assert 3 <= step <= len(seen)
    assert resumed[1:] == whole[step:]
