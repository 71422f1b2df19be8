"""`keras_images.py` on real JPEGs: killed and started again, it gives the bits of a whole run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.harness.server import InfeedServer

EXAMPLES = Path(__file__).parents[2] / "examples"

BATCH_SIZE = 16

DEFINITION = """\
pipelines:
  pictures:
    source: {images: data, labels: data/labels.csv}
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_resized_crop: {field: image, size: [64, 64]}
      - random_flip_left_right: {field: image}
      - normalize: {field: image, scale: 255.0}
    batch: {size: %d}
"""

KILL = """
import os, runpy, signal, sys
from infeed.keras import FeedCheckpoint

counted = FeedCheckpoint.on_train_batch_end
steps = []

def count_and_kill(checkpoint, batch, logs=None):
    counted(checkpoint, batch, logs)
    steps.append(batch)
    if len(steps) == killed_after:
        os.kill(os.getpid(), signal.SIGKILL)

FeedCheckpoint.on_train_batch_end = count_and_kill
killed_after = int(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def server(
    few_photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InfeedServer]:
    folder = tmp_path_factory.mktemp("keras_images")
    definition = folder / "pipelines.yaml"
    definition.write_text(DEFINITION % BATCH_SIZE)
    (folder / "data").symlink_to(few_photos.folder)
    with InfeedServer(definition, folder / "log") as running:
        yield running


@pytest.mark.parametrize(
    ("backend", "strategy"),
    # Each backend continues so: tests/client/keras/on_backend.py.
    [
        ("tensorflow", "cpu:2"),
        *(pytest.param(one, "", marks=pytest.mark.slow) for one in ("jax", "tensorflow", "torch")),
    ],
)
def test_a_killed_run_continues_with_the_same_bits(
    server: InfeedServer, few_photos: SimpleNamespace, backend: str, strategy: str, tmp_path: Path
) -> None:
    pytest.importorskip("keras")
    h5py = pytest.importorskip("h5py")
    pytest.importorskip(backend)

    def train(run: str, *prefix: str) -> int:
        script = str(EXAMPLES / "keras_images.py")
        options = ["--checkpoint", run, "--weights", f"{run}.weights.h5", "--save-every", "1"]
        options += ["--strategy", strategy]
        result = subprocess.run(
            [sys.executable, *prefix, script, server.address, *options],
            cwd=tmp_path,
            env={**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=False,
            timeout=500,  # a loaded machine compiles XLA's graphs for minutes
        )
        assert result.returncode in (0, -signal.SIGKILL), result.stderr[-4000:]
        return result.returncode

    def weights(run: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = item[()]

        with h5py.File(tmp_path / f"{run}.weights.h5") as file:
            file.visititems(visit)
        return found

    killed_after = few_photos.count // BATCH_SIZE + 1  # the first step of the second epoch
    assert train("whole") == 0
    assert train("killed", "-c", KILL, str(killed_after)) == -signal.SIGKILL
    (saved,) = (tmp_path / "killed").iterdir()
    assert saved.name == f"epoch-{1:06}-position-{BATCH_SIZE * killed_after:016}"
    assert train("killed") == 0
    expected = weights("whole")
    assert len(expected) > 12  # the optimizer's, too
    for name, values in weights("killed").items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
