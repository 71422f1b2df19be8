"""Directories of the cache: which are listed, deleted when space is needed, or in use."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from infeed_server.cache import directory
from infeed_server.cache.directory import (
    delete,
    list_directories,
    open_directory,
)
from infeed_server.cache.disk import DiskStore

Open = Callable[..., DiskStore]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """`opened(name, records, budget)`: a directory with some records of 10,000 bytes."""
    with ExitStack() as stack:

        def make(name: str, records: int = 10, budget: int = 1 << 20) -> DiskStore:
            result = open_directory(tmp_path, name, f"pipeline {name}", 100, budget)
            assert result is not None
            stack.callback(result.close)
            for index in range(records):
                result.put(index, os.urandom(10_000))
            return result

        yield make


def names(root: Path) -> list[str]:
    return [one.path.name for one in list_directories(root)]


def test_directories_in_use_are_listed_and_not_deleted(opened: Open, tmp_path: Path) -> None:
    opened("a").close()
    opened("b")
    first, second = list_directories(tmp_path)
    assert (first.pipeline, first.samples, first.is_in_use) == ("pipeline a", 100, False)
    assert (second.path.name, second.is_in_use) == ("b", True)
    assert 100_000 <= first.bytes <= 200_000
    assert not delete(second)
    assert delete(first)
    assert names(tmp_path) == ["b"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["b"]


def test_looking_at_directories_in_use_leaves_no_descriptors(opened: Open, tmp_path: Path) -> None:
    opened("a")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        list_directories(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_directory_that_is_opened_again_makes_no_room(opened: Open) -> None:
    opened("a", 80).close()  # more than half of the budget
    assert opened("a", 0).get(3) is not None


def test_directory_that_cannot_be_opened_may_be_in_use(opened: Open, tmp_path: Path) -> None:
    opened("a").close()
    (tmp_path / "a" / "in-use").unlink()
    (tmp_path / "a" / "in-use").mkdir()  # for root, too
    assert directory.is_in_use(tmp_path / "a")
    assert not directory.is_in_use(tmp_path / "deleted")


def test_other_processes_see_that_a_directory_is_in_use(opened: Open, tmp_path: Path) -> None:
    opened("a")
    code = "import sys; from pathlib import Path; from infeed_server.cache.directory import *; "
    code += "print([one.is_in_use for one in list_directories(Path(sys.argv[1]))])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[True]\n"


def test_unused_directories_make_room_oldest_first(opened: Open, tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        opened(name, 30).close()
        os.utime(tmp_path / name / "about.json", (number, number))
    used = opened("d", 30)  # its budget is not theirs
    new = opened("e", 100, 700_000)
    assert names(tmp_path) == ["c", "d", "e"]
    unused = sum(one.bytes for one in list_directories(tmp_path) if one.path.name == "c")
    assert new._reserved_bytes() + unused <= 700_000
    assert used.get(3) is not None


def test_damaged_description_is_no_directory(opened: Open, tmp_path: Path) -> None:
    opened("a").close()
    (tmp_path / "a" / "about.json").write_text("{")
    (tmp_path / "b").mkdir()
    assert names(tmp_path) == []
    assert opened("a", 0).get(3) is not None
    assert names(tmp_path) == ["a"]


def test_rest_of_an_interrupted_deletion_is_deleted_later(
    opened: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in "ab":
        opened(name, 30).close()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # "killed"
        first, second = list_directories(tmp_path)
        assert delete(first)
        opened("c", 0, second.bytes)  # deletes the other one
    assert names(tmp_path) == ["c"]
    assert len(list(tmp_path.glob(".deleted-*"))) == 2
    opened("d", 0)
    assert not list(tmp_path.glob(".deleted-*"))
    assert delete(first)  # another process was faster


def test_full_disk_is_no_reason_not_to_open(
    opened: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened("a").close()
    os.utime(tmp_path / "a" / "about.json", (0, 0))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert opened("a", 0).get(3) is not None
    assert list_directories(tmp_path)[0].used_at > 0
    assert open_directory(tmp_path, "b", "pipeline b", 100, 1 << 20) is None
    assert not directory.is_in_use(tmp_path / "b")


def test_what_is_verified_is_not_deleted(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened("aaa").close()
    (one,) = list_directories(tmp_path)
    deleted: list[bool] = []
    monkeypatch.setattr(
        directory.DiskStore, "verify", lambda _: (deleted.append(delete(one)) or 10, 0)
    )
    assert directory.verify(one) == (10, 0)
    assert deleted == [False]
