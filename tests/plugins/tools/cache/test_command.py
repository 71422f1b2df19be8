"""`infeed cache`: tables and exit status."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infeed.cli import new_app
from infeed.shared.errors import ConfigError
from infeed_server.cache import directory
from infeed_server.cache.directory import delete, list_directories, open_directory
from infeed_server.cache.disk import DiskStore


def fill(root: Path, name: str) -> DiskStore:
    """Opens a directory with 10 of 100 samples."""
    store = open_directory(root, name, f"pipeline {name}", 100, 1 << 20)
    for index in range(10):
        store.put(index, os.urandom(10_000))
    return store


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    return lambda *words: CliRunner().invoke(new_app(), ["cache", *words, "--path", str(tmp_path)])


def test_command_lists_verifies_and_clears(run: Any, tmp_path: Path) -> None:
    assert "no cache in" in run("list").stdout
    fill(tmp_path, "aaa").close()
    in_use = fill(tmp_path, "bbb")
    shown = run("list").output.splitlines()
    assert shown[0] == f"caches in {tmp_path}:"
    rows = [line.split() for line in shown if "10 of 100" in line]
    assert [row[:2] + row[7:] for row in rows] == [
        ["pipeline", "aaa", "unused", "aaa"],
        ["pipeline", "bbb", "in", "use", "bbb"],
    ]
    assert "verified" in run("verify", "aa").stdout
    with (tmp_path / "aaa" / "segment-1").open("r+b") as segment:
        segment.write(b"!")
    damaged = run("verify", "pipeline aaa")
    assert (damaged.exit_code, "1 damaged" in damaged.stdout) == (1, True)
    cleared = run("clear", "--json")
    assert cleared.exit_code == 1  # because one is in use
    assert '"is_deleted": true' in cleared.stdout
    in_use.close()
    assert [one.path.name for one in list_directories(tmp_path)] == ["bbb"]
    missing = run("clear", "zzz")
    assert isinstance(missing.exception, ConfigError)
    assert "has no cache of 'zzz'" in str(missing.exception)
    assert "available: pipeline bbb" in str(missing.exception)


@pytest.mark.parametrize("action", ["list", "verify", "clear"])
def test_command_skips_what_another_process_deletes(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    fill(tmp_path, "aaa").close()
    fill(tmp_path, "bbb").close()
    found = list_directories(tmp_path)
    monkeypatch.setattr(directory, "list_directories", lambda _: found)
    delete(found[0])
    shown = run(action)
    assert (shown.exit_code, "aaa" in shown.output, "bbb" in shown.output) == (0, False, True)
