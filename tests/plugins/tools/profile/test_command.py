"""The command `infeed profile`: output, JSON, exit status and Ctrl-C."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from tests.harness.nursery import Nursery
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed.shared.report import ServerReport
from infeed_tools.profile.figures import Cost, Profile, Stage
from infeed_tools.profile.text import print_profile

GOOD = """pipelines:
  numbers:
    source: {arrays: x.npz}
    transforms: [cast: {field: x, dtype: float16}]
    batch: {size: 2}
  rows:
    source: {dataset: "rows_of_profile:rows"}
    batch: {size: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "x.npz", x=np.arange(10))
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "rows_of_profile.py").write_text(
        "import tensorflow as tf\n\n\ndef rows():\n    print('called')\n"
        "    return tf.data.Dataset.range(20).map(lambda i: {'i': i})\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["profile", *arguments])


def test_text_has_the_stages_and_the_rates(folder: Path) -> None:
    result = run("good.yaml", "numbers", "--seconds", "0.2")
    assert result.exit_code == 0, result.output
    for text in ("batches of 2; stages measured on 10 samples", "0: cast", "measured: "):
        assert text in result.stdout
    for step in ("samples for the stages", "read arrays", "0: cast", "the whole pipeline"):
        assert f"profile of numbers: {step}\n" in result.stderr
    assert "profile of" not in result.stdout


def test_json_of_a_dataset_has_no_print_of_its_function(folder: Path) -> None:
    result = run("good.yaml", "rows", "--seconds", "0.2", "--json", "--batch-size", "5")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["complete"], document["stages"], document["batch_size"]) == (True, [], 5)
    assert document["run"]["samples"] > 0


def test_sigint_prints_the_figures_and_exits_with_130(nursery: Nursery, folder: Path) -> None:
    (folder / "interrupting.py").write_text(
        "import itertools\nimport os\nimport signal\n\nREADS = itertools.count()\n\n\n"
        "class Numbers:\n    fingerprint = '1'\n\n"
        "    def __len__(self):\n        return 1000\n\n"
        "    def __getitem__(self, index):\n"
        # After the samples on which the stages are measured.
        "        if next(READS) == 500:\n            os.kill(os.getpid(), signal.SIGINT)\n"
        "        return index\n"
    )
    (folder / "interrupted.yaml").write_text(
        "pipelines:\n  p:\n    source: {python: 'interrupting:Numbers'}\n    batch: {size: 4}\n"
    )
    process = subprocess.run(
        [nursery.python, "-m", "infeed", "profile", "interrupted.yaml", "p", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 130, process.stderr
    document = json.loads(process.stdout)
    assert (document["pipeline"], document["complete"]) == ("p", False)
    assert document["samples"] == 64


def text_of(run: ServerReport, cpu: float = 0.002) -> str:
    crop = Stage("transform", "crop", Cost(cpu, cpu), 8, 8)
    profile = Profile("p", cores=2, batch_size=8, stages=[crop], run=run)
    file = StringIO()
    print_profile(profile, file, complete=True)
    return file.getvalue()


def test_text_has_the_cores_of_other_processes() -> None:
    run = ServerReport(2.0, 125, cpu_seconds=2.0, cores=2.0, available_cores=1.0)
    text = text_of(run)
    assert "measured: 500 samples/s, 1.00 of 2 cores used" in text
    assert "other processes on this host used 1.00 cores meanwhile" in text
    assert "meanwhile" not in text_of(replace(run, cpu_seconds=4.0, available_cores=2.0))
