"""Files that are read again when they change, and what stays in force when they are wrong."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from infeed.errors import ConfigError
from infeed_server.config import watched
from infeed_server.config.watched import Watched


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "it"
    file.write_text("one")
    return file


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets time pass when it is told to."""

    class Clock:
        seconds = 100.0

        def monotonic(self) -> float:
            return self.seconds

    clock = Clock()
    monkeypatch.setattr(watched, "time", clock)
    return clock


def text_of(file: Path) -> Watched[str]:
    def make() -> str:
        text = file.read_text()
        if "wrong" in text:
            raise ConfigError(f"{file}: {text}")
        return text

    return Watched([file], make)


def test_a_change_is_seen(file: Path, now: Any) -> None:
    it = text_of(file)
    assert it.value == "one"
    file.write_text("other")
    assert it.value == "one"  # nobody has looked yet
    now.seconds += watched.LOOK_SECONDS
    assert it.value == "other"


def test_files_that_stay_are_not_read_again(file: Path, now: Any) -> None:
    made: list[int] = []
    it = Watched([file], lambda: made.append(1))
    for _ in range(5):
        now.seconds += 2
        assert it.value is None
    assert len(made) == 1


def test_a_look_is_taken_once_a_second_at_most(
    file: Path, now: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []
    real = watched._stamp
    it = text_of(file)
    monkeypatch.setattr(watched, "_stamp", lambda name: (looks.append(name), real(name))[1])
    for _ in range(1000):
        now.seconds += 0.005
        assert it.value == "one"
    assert 4 <= len(looks) <= 6


@pytest.mark.parametrize("how", ["longer", "as long", "another file", "a link elsewhere"])
def test_every_kind_of_change(file: Path, now: Any, tmp_path: Path, how: str) -> None:
    it = text_of(file)
    if how == "longer":
        old = file.stat()
        file.write_text("two and more")
        os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    elif how == "as long":
        file.write_text("two")
        os.utime(file, ns=(1, 1))
    elif how == "another file":
        other = tmp_path / "new"
        other.write_text("two")
        old = file.stat()
        os.utime(other, ns=(old.st_atime_ns, old.st_mtime_ns))
        other.rename(file)
    else:  # as orchestrators mount secrets
        other = tmp_path / "new"
        other.write_text("two")
        file.unlink()
        file.symlink_to(other)
    now.seconds += 2
    assert it.value.startswith("two")


@pytest.mark.parametrize("how", ["wrong", "gone", "a folder", "no text"])
def test_what_was_good_stays_in_force(
    file: Path, now: Any, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.INFO)
    it = text_of(file)
    if how == "wrong":
        file.write_text("wrong")
    elif how == "no text":
        file.write_bytes(b"\xff")  # whose error is none of infeed's
    else:
        file.unlink()
        if how == "a folder":
            file.mkdir()
    for _ in range(4):
        now.seconds += 2
        assert it.value == "one"
    assert caplog.text.count("what was read before stays in force") == 1  # not every second
    assert ("Traceback" in caplog.text) == (how != "wrong")  # which has words of its own
    if how == "a folder":
        file.rmdir()
    file.write_text("good again")
    now.seconds += 2
    assert it.value == "good again"
    assert f"read again: {file}" in caplog.text


def test_what_is_wrong_at_first_is_an_error(file: Path) -> None:
    file.write_text("wrong")
    with pytest.raises(ConfigError, match="wrong"):
        text_of(file)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        text_of(file)


def test_any_of_several_files(tmp_path: Path, now: Any) -> None:
    files = [tmp_path / name for name in "ab"]
    for each in files:
        each.write_text("1")
    it = Watched(files, lambda: "".join(each.read_text() for each in files))
    for each, whole in zip(files, ("21", "22"), strict=True):
        each.write_text("2")
        os.utime(each, ns=(5, 5))
        now.seconds += 2
        assert it.value == whole


def test_a_change_while_it_is_read_is_seen_next_time(file: Path, now: Any) -> None:
    """It is looked at before it is read: what is read may be newer than the look, never older."""
    contents = iter(["two", "three and more"])

    def make() -> str:
        text = file.read_text()
        for new in contents:
            file.write_text(new)
            break
        return text

    it = Watched([file], make)
    seen = [it.value]
    for _ in range(3):
        now.seconds += 2
        seen.append(it.value)
    assert seen[-1] == "three and more"


def test_many_threads(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    it = text_of(file)
    wrong: list[str] = []

    def read() -> None:
        values = [it.value for _ in range(300)]
        wrong.extend(value for value in values if value not in ("one", "another"))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    new = file.with_name("new")
    for number in range(100):
        new.write_text(("one", "another")[number % 2])
        new.rename(file)
    for thread in threads:
        thread.join()
    assert wrong == []
