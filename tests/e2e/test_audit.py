"""`infeed audit` against servers: its text, its JSON and its exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from infeed import InfeedError
from infeed.cli import new_app
from infeed_server.pipeline.load import from_yaml

FUNCTIONS = """
import tensorflow as tf

def check(sample):
    x = sample["x"]
    with tf.control_dependencies([tf.debugging.assert_none_equal(x % 20, tf.constant(7, x.dtype))]):
        return {"x": tf.identity(x)}
"""
DEFINITION = """
pipelines:
  photos:
    source: {{images: {folder}, labels: {folder}/labels.csv}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [24, 24]}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: 8}}
""" + "".join(
    f"""
  bad-{action}:
    source: {{{{arrays: data.npz}}}}
    shuffle: {{{{seed: 1}}}}
    transforms: [{{{{map: audited_functions:check}}}}]
    batch: {{{{size: 8}}}}
    on_error: {action}
    quarantine: bad-{action}.jsonl
"""
    for action in ("raise", "substitute", "mask")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    np.savez(folder / "data.npz", x=np.arange(50))
    (folder / "audited_functions.py").write_text(FUNCTIONS)
    return folder


@pytest.fixture(scope="module")
def address(shared: Any, folder: Path, few_photos: SimpleNamespace) -> Iterator[str]:
    file = folder / "pipelines.yaml"
    file.write_text(DEFINITION.format(folder=few_photos.folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield str(shared(from_yaml(str(file))).address)


def test_photos_are_exact_across_resumes(
    command_line: Any, address: str, few_photos: SimpleNamespace, tmp_path: Path
) -> None:
    ranks = ("--world-size", "3,2,5", "--resume-every", "2", "--batch-size", "5")
    options = (*ranks, "--epochs", "2", "--seed", "4", "--json", "report.json")
    run = command_line.run("audit", address, "photos", *options, cwd=tmp_path)
    assert run.status == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "exact"
    for text in ("photos fingerprint", "exactly once delivery", "seed 4", "world size 3, 2, 5"):
        assert text in run.stdout
    assert run.stderr == ""  # no progress bar without a terminal
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["exact"] is True
    assert [run["world_size"] for run in report["runs"][:3]] == [3, 2, 5]
    assert report["total"]["once"] == 2 * few_photos.count
    assert report["total"]["never"] == report["total"]["more"] == 0


def test_bad_samples_are_counted_by_action(address: str) -> None:
    """Samples 7, 27 and 47 of 50 are bad."""

    def audit(action: str, *log: str) -> Result:
        options = ("--world-size", "2", "--epochs", "2", *log)
        return CliRunner().invoke(new_app(), ["audit", address, f"bad-{action}", *options])

    masked = audit("mask")
    assert masked.exit_code == 0, masked.output
    assert "6 bad samples masked (on_error: mask)" in masked.stdout

    unnamed = audit("substitute")
    assert unnamed.exit_code == 2
    assert "epoch 0: 3 samples lost: 7, 27, 47" in unnamed.stdout
    assert "--quarantine LOG" in unnamed.stdout
    assert unnamed.stdout.splitlines()[-1] == "NOT exact"

    named = audit("substitute", "--quarantine", "bad-substitute.jsonl")
    assert named.exit_code == 0, named.output
    assert "6 bad samples substituted" in named.stdout

    # Entries of other pipelines and actions do not count.
    assert audit("substitute", "--quarantine", "bad-mask.jsonl").exit_code == 2

    raised = audit("raise")
    assert raised.exit_code == 1
    assert isinstance(raised.exception, InfeedError)
    assert "data.npz" in str(raised.exception)
