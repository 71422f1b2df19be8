"""Tests of `config/reloading.py`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.config import reloading
from infeed_server.config.reloading import ReloadingValue


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "value"
    file.write_text("one")
    return file


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces the clock; a test advances `seconds`."""

    class Clock:
        seconds = 100.0

        def monotonic(self) -> float:
            return self.seconds

    clock = Clock()
    monkeypatch.setattr(reloading, "time", clock)
    return clock


def reloading_text(file: Path) -> ReloadingValue[str]:
    def make() -> str:
        text = file.read_text()
        if "wrong" in text:
            raise ConfigError(f"{file}: {text}")
        return text

    return ReloadingValue([file], make)


@pytest.mark.parametrize("change", ["content", "inode", "link"])
def test_every_kind_of_change_is_seen_after_the_interval(
    file: Path, now: Any, tmp_path: Path, change: str
) -> None:
    content, old, other = reloading_text(file), file.stat(), tmp_path / "new"
    assert content.value == "one"
    other.write_text("two")
    os.utime(other, ns=(old.st_atime_ns, old.st_mtime_ns))
    if change == "content":
        file.write_text("two")
    elif change == "inode":
        other.rename(file)
    else:  # as orchestrators mount secrets
        file.unlink()
        file.symlink_to(other)
    assert content.value == "one"
    now.seconds += reloading.CHECK_INTERVAL_SECONDS
    assert content.value == "two"


@pytest.mark.parametrize("problem", ["wrong", "deleted", "folder", "not text"])
def test_previous_value_stays_when_the_file_is_invalid(
    file: Path, now: Any, caplog: pytest.LogCaptureFixture, problem: str
) -> None:
    caplog.set_level(logging.INFO)
    content = reloading_text(file)
    if problem == "wrong":
        file.write_text("wrong")
    elif problem == "not text":
        file.write_bytes(b"\xff")  # raises UnicodeDecodeError
    else:
        file.unlink()
        if problem == "folder":
            file.mkdir()
    for _ in range(4):
        now.seconds += 2
        assert content.value == "one"
    assert caplog.text.count("the previous content stays in force") == 1  # not every second
    assert ("Traceback" in caplog.text) == (problem != "wrong")  # a `ConfigError`
    if problem == "folder":
        file.rmdir()
    file.write_text("good again")
    now.seconds += 2
    assert content.value == "good again"
    assert f"reloaded: {file}" in caplog.text
