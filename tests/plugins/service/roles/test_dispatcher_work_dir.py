"""Tests of a dispatcher's work directory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from infeed_service.roles.dispatcher import find_work_dir_problem, free_bytes


def test_folder_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_work_dir_problem(tmp_path) is None
    assert not list(tmp_path.iterdir())
    folder = tmp_path / "none"
    problem = f"the dispatcher cannot write to its work directory {folder}, so no job continues"
    assert find_work_dir_problem(folder) == f"{problem}: No such file or directory"
    # A disk without a free block has room for an empty file.
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "wb"))  # noqa: SIM115, PTH123
    assert str(find_work_dir_problem(tmp_path)).endswith("No space left on device")


def test_free_space_of_a_missing_folder_is_none(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
    assert free_bytes(tmp_path / "none") == 0
