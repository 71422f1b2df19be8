"""`examples/big_vision_train.py` with big_vision's own program: killed, it continues exactly.

Needs big_vision's sources on the path, and what they import; skipped without them.
"""

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

pytest.importorskip("big_vision")
pytest.importorskip("clu")

EXAMPLE = Path(__file__).parents[2] / "examples" / "big_vision_train.py"
FILES, STEPS, KILLED_AT = 44, 30, 8

PIPELINES = """
pipelines:
  images:
    source: {images: photos, labels: labels.csv}
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_resized_crop: {field: image, size: [32, 32]}
      - random_flip_left_right: {field: image}
      - normalize: {field: image, scale: 127.5, mean: 1.0}
      - one_hot: {field: label, depth: 1000}
      - rename: {fields: {label: labels}}
    batch: {size: 4}
"""

CONFIG = f"""
from ml_collections import ConfigDict


def get_config():
    return ConfigDict(
        dict(
            total_steps={STEPS},
            ckpt_steps=1,
            log_training_steps=1,
            num_classes=1000,
            loss="softmax_xent",
            input=dict(batch_size=8),
            pp_modules=["ops_general"],
            model_name="vit",
            model=dict(variant="mu/16", pool_type="gap", posemb="sincos2d"),
            optax_name="scale_by_adam",
            optax=dict(),
            lr=0.001,
            wd=0.0001,
            schedule=dict(warmup_steps=2, decay_type="cosine"),
            evals=dict(),
        )
    )
"""

RECORDING = """
import hashlib, runpy, sys
import numpy as np
from big_vision import utils
from infeed.jax import DeviceFeed

following = DeviceFeed.__next__

def recorded(batches):
    batch = following(batches)
    arrays = [np.asarray(batch[name].addressable_data(0)) for name in ("image", "labels")]
    print("batch", hashlib.sha256(b"".join(x.tobytes() for x in arrays)).hexdigest(), flush=True)
    return batch

DeviceFeed.__next__ = recorded
utils.sync = lambda: None  # the last call of the program; newer JAX has not what it uses
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def address(serve: Any, photos: SimpleNamespace, tmp_path: Path) -> str:
    (tmp_path / "photos").mkdir()
    files = sorted(photos.labels)[:FILES]
    for file in files:
        shutil.copy(photos.folder / file, tmp_path / "photos")
    rows = [f"{file},{photos.labels[file]}" for file in files]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]) + "\n")
    (tmp_path / "config.py").write_text(CONFIG)
    return str(serve(PIPELINES).address)


def train(address: str, folder: Path, kill_at: int | None = None) -> list[str]:
    """Runs the program, up to that batch; returns a hash of each batch that it has taken."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(item for item in sys.path if item)}
    env |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    options = ["--config", str(folder.parent / "config.py"), "--workdir", str(folder)]
    command = [sys.executable, "-c", RECORDING, EXAMPLE, address, "images", *options]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        taken: list[str] = []
        for line in process.stdout:
            taken += re.findall(r"^batch (\w+)$", line)
            if len(taken) == kill_at:
                process.kill()
        assert process.wait(300) == (0 if kill_at is None else -9)
    return taken


def losses(folder: Path) -> dict[int, float]:
    """Returns the loss of each step in the log, from which big_vision may leave out some."""
    lines = (folder / "big_vision_metrics.txt").read_text().splitlines(keepends=True)
    logged = [json.loads(line) for line in lines if line.endswith("\n")]
    return {step["step"]: step["training_loss"] for step in logged if "training_loss" in step}


def test_a_killed_run_continues_with_the_same_batches_and_losses(
    address: str, tmp_path: Path
) -> None:
    whole = train(address, tmp_path / "whole")
    assert len(set(whole)) == STEPS
    train(address, tmp_path / "killed", kill_at=KILLED_AT)
    done = int((tmp_path / "killed" / "checkpoint.bv-LAST").read_text()[:9])
    assert 0 < done < STEPS
    (tmp_path / "killed" / "big_vision_metrics.txt").unlink()
    assert train(address, tmp_path / "killed") == whole[done:]
    expected, seen = losses(tmp_path / "whole"), losses(tmp_path / "killed")
    assert min(seen) > done
    assert max(seen) == STEPS
    assert len(seen.keys() & expected.keys()) > (STEPS - done) / 2
    assert all(seen[step] == expected[step] for step in seen.keys() & expected.keys())
