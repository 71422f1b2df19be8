"""The command `infeed init`: the files that it writes, and those that it spares."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.harness.datasets import jpeg
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed.shared.errors import ConfigError
from infeed_server.pipeline.load import from_yaml


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "digits.npz", x=np.arange(10))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(jpeg(0))
    (tmp_path / "photos" / "b.jpg").write_bytes(jpeg(1))
    (tmp_path / "species.csv").write_text("picture,species\na,cat\nb,dog\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["init", *arguments])


def test_default_file_is_beside_the_user(folder: Path) -> None:
    result = run("digits.npz")
    assert result.exit_code == 0, result.output
    text = (folder / "pipelines.yaml").read_text()
    assert text.startswith(
        "# Written by: infeed init digits.npz\n"
        "# Next: infeed check pipelines.yaml --scan, then infeed serve pipelines.yaml\n"
        "pipelines:\n  digits:\n"
    )
    assert list(from_yaml("pipelines.yaml")) == ["digits"]
    name = f"{'long ' * 20}name.yaml"
    assert f"\nnext: infeed check '{name}' --scan\n" in run("digits.npz", "-o", name).output


def test_paths_are_relative_to_the_written_file(folder: Path) -> None:
    (folder / "definitions").mkdir()
    assert run("photos", "-o", "definitions/p.yaml", "--labels", "species.csv").exit_code == 0
    text = (folder / "definitions" / "p.yaml").read_text()
    assert "images: ../photos" in text
    # The labels in the CSV beside the folder, in a form that the source can read.
    assert "labels: photos-labels.infeed.csv" in text
    labels = (folder / "definitions" / "photos-labels.infeed.csv").read_text()
    assert labels == "file,label\na.jpg,cat\nb.jpg,dog\n"


def test_unclear_labels_are_commands_and_no_file(folder: Path) -> None:
    result = run("photos", "-o", "my file.yaml")
    assert str(result.exception).splitlines()[1:] == [
        "  infeed init photos --output 'my file.yaml' --labels species.csv:species"  # noqa: ISC004
        "  # label is the column species of species.csv, 2 for 2 of 2 images: cat, dog",
        "  infeed init photos --output 'my file.yaml' --labels none  # no label",
    ]
    assert not (folder / "my file.yaml").exists()


def test_unclear_labels_are_asked_for_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infeed_tools.init.command._is_interactive", lambda: True)
    result = CliRunner().invoke(new_app(), ["init", "photos"], input="7\n1\n")
    assert result.exit_code == 0, result.output
    assert "  1  infeed init photos --labels species.csv:species  # label" in result.output
    assert "column species of" in result.output
    assert "a.jpg: cat" in result.output
    written = (folder / "pipelines.yaml").read_text()
    assert written.startswith("# Written by: infeed init photos --labels species.csv:species\n")


def test_new_file_is_written_whole_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(folder.iterdir())
    monkeypatch.setattr(os, "fsync", fail)
    result = run("digits.npz")
    assert str(result.exception) == "pipelines.yaml cannot be written: No space left on device"
    assert sorted(folder.iterdir()) == before


def test_force_keeps_mode_and_links_of_a_file(folder: Path) -> None:
    (folder / "mine.yaml").write_text("old")
    (folder / "mine.yaml").chmod(0o600)
    (folder / "same.yaml").hardlink_to(folder / "mine.yaml")
    (folder / "link.yaml").symlink_to("mine.yaml")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    assert run("digits.npz", "--output", "link.yaml", "--force").exit_code == 0
    assert (folder / "link.yaml").is_symlink()
    assert (folder / "mine.yaml").stat().st_mode & 0o777 == 0o600
    assert "arrays: digits.npz" in (folder / "same.yaml").read_text()
    result = run("digits.npz", "--output", "loop.yaml", "--force")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("loop.yaml cannot be written: Too many levels")


def test_existing_file_is_kept_without_force(folder: Path) -> None:
    (folder / "photos-labels.infeed.csv").write_text("old")
    result = run("photos", "--labels", "species.csv")
    assert isinstance(result.exception, ConfigError)
    message = "photos-labels.infeed.csv already exists; overwrite it with --force"
    assert str(result.exception).startswith(message)
    assert not (folder / "pipelines.yaml").exists()
    assert run("photos", "--labels", "species.csv", "--force").exit_code == 0
    assert (folder / "photos-labels.infeed.csv").read_text() != "old"
    assert isinstance(run("digits.npz").exception, ConfigError)
    assert "photos" in (folder / "pipelines.yaml").read_text()


def test_labels_of_another_init_are_kept(folder: Path) -> None:
    assert run("photos", "--labels", "species.csv").exit_code == 0
    labels = folder / "photos-labels.infeed.csv"
    assert run("photos", "--labels", "species.csv", "-o", "same.yaml").exit_code == 0
    labels.write_text("of another folder")
    problem = str(run("photos", "--labels", "species.csv", "-o", "other.yaml").exception)
    assert problem.endswith("overwrite it with --force, or give --output in another folder")
    assert labels.read_text() == "of another folder"


def test_pattern_that_the_shell_expanded_has_a_hint() -> None:
    problem = str(run("a-0.tar", "a-1.tar").exception)
    assert problem.startswith("2 paths, such as a-0.tar and a-1.tar, ")
    assert "quote a pattern" in problem


def test_one_of_several_sources_is_chosen(folder: Path) -> None:
    result = run(".")
    assert str(result.exception).splitlines() == [
        ". has data for several sources; choose one:",
        "  infeed init . --source arrays  # 1: digits.npz",
        "  infeed init . --source images  # 2: a.jpg, b.jpg",
    ]
    assert run(".", "--source", "arrays", "-o", "arrays.yaml").exit_code == 0
    assert run(".", "--source", "images", "--labels", "none").exit_code == 0
    assert "images: photos}" in (folder / "pipelines.yaml").read_text()
    problem = str(run(".", "--source", "mds").exception)
    assert problem == "--source mds: . has no such data; it has: arrays, images"


def test_dash_is_standard_output(folder: Path) -> None:
    result = run("digits.npz", "--output", "-")
    assert result.exit_code == 0, result.output
    assert "arrays: digits.npz" in result.stdout
    assert not (folder / "pipelines.yaml").exists()
    result = run("photos", "--output", "-", "--labels", "species.csv")
    assert str(result.exception).startswith(
        "--output -: photos-labels.infeed.csv must be written beside"
    )


def test_name_that_is_not_utf_8_is_refused_whole(folder: Path) -> None:
    strange = os.fsdecode(b"caf\xe9")
    for number, name in enumerate(
        (f"train/{strange}", "train/dog", "train/eel", f"val/{strange}", "val/dog")
    ):
        (folder / "p" / name).mkdir(parents=True)
        (folder / "p" / name / f"{number}.jpg").write_bytes(jpeg(0))
    problem = str(run("p").exception)
    assert "is not UTF-8; rename it" in problem
    assert not (folder / "pipelines.yaml").exists()


def test_what_was_understood_is_a_table() -> None:
    output = run("photos", "--labels", "species.csv").output
    for title in ("pipeline", "samples", "fields", "label", "classes", "examples"):
        assert title in output
    assert "written: pipelines.yaml, photos-labels.infeed.csv: 1 pipeline\n" in output
    assert "x: int64[], 0 to 9" in run("digits.npz", "--force").output


@pytest.mark.parametrize("name", ["x.jpg", "x.tar", "x.tfrecord"])
def test_pointers_of_git_lfs_are_named(folder: Path, name: str) -> None:
    (folder / "clone").mkdir()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5\n"
    (folder / "clone" / name).write_text(pointer)
    assert f"clone/{name} is a Git LFS pointer" in str(run("clone").exception)
