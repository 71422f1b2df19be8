"""What a person gets wrong in a YAML file: told at once, with its line, and nothing is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

GOOD = """
pipelines:
  good:
    source: {arrays: data.npz}
    transforms:
      - cast: {field: x, dtype: float32}
    batch: {size: 4}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("definitions")
    image = np.zeros((10, 8, 8, 3), np.uint8)
    np.savez(folder / "data.npz", x=np.arange(10), image=image)
    (folder / "data.npy").write_bytes(b"")
    (folder / "empty").mkdir()
    (folder / "empty.tfrecord").write_bytes(b"")
    np.savez(folder / "empty.npz", x=np.zeros((0, 3)))
    (folder / "mine.py").write_text(
        "import tensorflow as tf\n"
        "def numbers():\n"
        "    return tf.data.Dataset.range(10)\n"
        "def varying(sample):\n"
        "    return {'x': tf.range(sample['x'])}\n"
    )
    return folder


def test_every_problem_of_the_file_is_told_at_once(command_line: Any, folder: Path) -> None:
    told = command_line.refused(
        """
pipelines:
  first:
    sorce: {arrays: data.npz}
    batch: {size: "4"}
  second:
    source: {arrays: data.npz, lables: folders}
    shuffle: {mode: globl, seed: -1}
    transforms:
      - reszie: {field: image, size: [4, 4]}
      - resize: {field: image, size: [4], methd: area}
    batch: {size: 4, remainder: keep}
    on_error: ignore
  third: nothing
  fourth:
    source: {arrays: data.npz, images: empty}
    batch: {size: 0}
""",
        folder,
    )
    print(told)
    lines = told.splitlines()
    assert 0
