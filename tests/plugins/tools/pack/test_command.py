"""The command `infeed pack`: sources, output and exit status."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.harness.datasets import jpeg
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed.shared.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "digits.npz", x=np.arange(10, dtype=np.int32), y=np.zeros((10, 2)))
    definition = "{source: {arrays: digits.npz}, batch: 4}"
    text = f"pipelines: {{one: {definition}, two: {definition}}}\n"
    (tmp_path / "pipelines.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["pack", *arguments, "--workers", "1"])


def test_data_is_packed(folder: Path) -> None:
    result = run("digits.npz", "packed")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "source:",
        f"  tfrecord: {folder}/packed/digits-*-of-00001.tfrecord",
        "  features:",
        "    x: int64",
        "    y: bytes",
        "transforms:",
        "  - cast: {field: x, dtype: int32}",
        "  - decode_raw: {field: y, dtype: float64, shape: [2]}",
    ]


def test_a_pipeline_is_chosen() -> None:
    result = run("pipelines.yaml", "packed")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).endswith("several pipelines; give --pipeline, one of: one, two")
    result = run("pipelines.yaml", "packed", "--pipeline", "three")
    assert "pipelines.yaml has no pipeline 'three'; give" in str(result.exception)
    options = ("--pipeline", "two", "--part", "0/2", "--samples-per-shard", "5")
    assert run("pipelines.yaml", "packed", *options).exit_code == 0
    names = {path.name for path in Path("packed").glob("*.tfrecord")}
    assert names == {"two-00000-of-00002.tfrecord"}
    result = run("pipelines.yaml", "packed", "--pipeline", "two", "--labels", "labels.csv")
    assert "--labels: the pipelines already have labels" in str(result.exception)


def test_data_in_a_store_is_packed() -> None:
    problem = str(run("s3:///digits.npz", "packed").exception)
    assert "s3:///digits.npz" in problem
    assert "no module" not in problem


def test_a_source_that_is_unclear_names_its_remedy(folder: Path) -> None:
    (folder / "table.csv").write_text("file,label\na.jpg,1\n")
    (folder / "train.tar").touch()
    problem = str(run(".", "packed").exception)
    assert "that infeed init writes with --source arrays or --source webdataset" in problem


def test_an_error_names_the_file_of_the_user(folder: Path) -> None:
    (folder / "photos").mkdir()
    for number in range(2):
        (folder / "photos" / f"{number}.jpg").write_bytes(jpeg(number)[: 300 + 9000 * number])
    problem = str(run("photos", "packed", "--short-side", "8").exception)
    assert f"{folder}/photos/0.jpg" in problem


def test_the_folder_of_the_source_is_refused(folder: Path) -> None:
    problem = str(run(".", f"{folder}/").exception)
    assert problem == f"DEST {folder}/ is the source's folder; give a new or empty folder"
    assert len(list(folder.iterdir())) == 2
