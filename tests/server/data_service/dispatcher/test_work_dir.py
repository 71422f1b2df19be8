"""Tests of `data_service/dispatcher/work_dir.py`."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pytest

from infeed_server.data_service.dispatcher.work_dir import WorkDirMonitor, folder_bytes


def test_folder_that_cannot_be_written_is_a_problem_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = tmp_path / "work"
    folder.mkdir()
    changes: list[str | None] = []
    monitor = WorkDirMonitor(folder, changes.append)
    monitor.run_once()
    assert (monitor.problem, changes) == (None, [])
    assert monitor.free_bytes > 0
    folder.rmdir()
    for _ in range(2):
        monitor.run_once()
    problem = f"the dispatcher cannot write to its work directory {folder}, so no job continues"
    assert str(monitor.problem).startswith(problem)
    assert (monitor.free_bytes, monitor.used_bytes) == (0, 0)
    folder.mkdir()
    monitor.run_once()
    assert changes == [f"{problem}: No such file or directory", None]
    assert caplog.text.count(problem) == 1
    assert not list(folder.iterdir())


def test_full_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A disk without a free block has room for an empty file.
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "wb"))  # noqa: SIM115, PTH123
    monitor = WorkDirMonitor(tmp_path)
    monitor.run_once()
    assert str(monitor.problem).endswith("so no job continues: No space left on device")


def test_files_of_all_folders_are_counted(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "a").write_bytes(bytes(1000))
    (tmp_path / "b").write_bytes(bytes(24))
    assert folder_bytes(tmp_path) == WorkDirMonitor(tmp_path).used_bytes == 1024
    assert folder_bytes(tmp_path / "none") == 0
