"""Reads of ranges: exact, repeated after faults, and never of a changed file."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import SourceError
from infeed_server.storage.files import list_files
from infeed_server.storage.handles import MAX_ALL_IDLE_HANDLES, FileHandle, FileHandlePool
from infeed_server.storage.ranges import RangeReader

CONTENTS = [random.Random(number).randbytes(100_000) for number in range(3)]
Open = Callable[..., RangeReader]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    for number, content in enumerate(CONTENTS):
        (tmp_path / f"{number}.bin").write_bytes(content)
    return [tmp_path / f"{number}.bin" for number in range(len(CONTENTS))]


@pytest.fixture
def opened(paths: list[Path]) -> Iterator[Open]:
    readers: list[RangeReader] = []

    def make(prefix: str = "", **options: Any) -> RangeReader:
        readers.append(RangeReader(list_files([f"{prefix}{path}" for path in paths]), **options))
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()


def read(ranges: RangeReader, file: int = 1, begin: int = 5, size: int = 10) -> bytes:
    (content,) = ranges.read(np.array([file]), np.array([begin]), np.array([size]))
    return bytes(content)


@pytest.mark.parametrize(
    "options", [{}, {"threads": 3}, {"keep_open": False}, {"prefix": "file://"}]
)
def test_ranges_in_any_order_are_exact(opened: Open, options: Any) -> None:
    draw = np.random.default_rng(1)
    files, begins = draw.integers(0, 3, 50), draw.integers(0, 60_000, 50)
    sizes = draw.integers(0, 30_000, 50)
    found = opened(**options).read(files, begins, sizes)
    for file, begin, size, content in zip(files, begins, sizes, found, strict=True):
        assert content == CONTENTS[file][begin : begin + size]


def fails(monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, calls: int) -> None:
    """Makes the first calls of a method of `FileHandle` fail."""
    original, failures = getattr(FileHandle, method), [error] * calls

    def failing(self: FileHandle, *args: Any) -> Any:
        if failures:
            raise failures.pop()
        return original(self, *args)

    monkeypatch.setattr(FileHandle, method, failing)


@pytest.mark.parametrize(
    ("method", "code"), [("__init__", errno.EMFILE), ("read", errno.EIO), ("read", errno.ESTALE)]
)
def test_passing_fault_is_retried(
    opened: Open, monkeypatch: pytest.MonkeyPatch, retry_delays: list[float], method: str, code: int
) -> None:
    ranges = opened()
    fails(monkeypatch, method, OSError(code, os.strerror(code)), calls=3)
    assert read(ranges) == CONTENTS[1][5:15]
    assert len(retry_delays) == 3


def test_range_that_is_not_read_to_its_end_is_read_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch, retry_delays: list[float]
) -> None:
    original = FileHandle.read
    monkeypatch.setattr(
        FileHandle, "read", lambda *args: original(*args)[: None if retry_delays else 4]
    )
    assert read(opened()) == CONTENTS[1][5:15]
    assert len(retry_delays) == 1


@pytest.mark.parametrize("content", [CONTENTS[0], b"shorter"])
@pytest.mark.parametrize(
    "options", [{}, {"was_read": True}, {"keep_open": False}, {"prefix": "file://"}]
)
def test_changed_file_is_refused_at_once(
    opened: Open, paths: list[Path], retry_delays: list[float], options: Any, content: bytes
) -> None:
    ranges = opened(**{name: value for name, value in options.items() if name != "was_read"})
    if "was_read" in options:  # the file stays open from here on
        read(ranges)
    paths[1].write_bytes(content)
    os.utime(paths[1], ns=(1, 1))
    difference = f"it had 100000 bytes and has {len(content)}, modified at another time"
    if "prefix" in options:
        difference = "it has another etag"
    with pytest.raises(SourceError, match=rf"1\.bin changed since it was opened: {difference}"):
        read(ranges)
    assert retry_delays == []
    assert read(ranges, 0) == CONTENTS[0][5:15]


def test_file_that_is_changed_while_it_is_read_is_refused(
    opened: Open, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FileHandle.read

    def read_and_change(handle: FileHandle, offset: int, size: int) -> bytes:
        content = original(handle, offset, size)
        os.utime(paths[1], ns=(1, 1))
        return content

    monkeypatch.setattr(FileHandle, "read", read_and_change)
    with pytest.raises(SourceError, match="changed since it was opened"):
        read(opened())


def test_open_file_is_read_after_its_path_is_replaced(opened: Open, paths: list[Path]) -> None:
    kept, again = opened(), opened(keep_open=False)
    assert read(kept) == read(again) == CONTENTS[1][5:15]
    paths[0].replace(paths[1])
    os.utime(paths[1], ns=(1, 1))
    assert read(kept) == CONTENTS[1][5:15]
    with pytest.raises(SourceError, match="changed since it was opened"):
        read(again)


def test_file_that_became_a_pipe_is_refused(opened: Open, paths: list[Path]) -> None:
    ranges = opened()
    paths[1].unlink()
    os.mkfifo(paths[1])
    with ThreadPoolExecutor() as thread:
        reading = thread.submit(read, ranges)
        try:
            with pytest.raises(SourceError, match=r"1\.bin"):
                reading.result(60)
        finally:  # a writer, for which a read might wait
            os.close(os.open(paths[1], os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.parametrize("options", [{"threads": 2}, {"prefix": "file://"}])
def test_closed_reader_refuses_reads(opened: Open, options: Any) -> None:
    ranges = opened(**options)
    ranges.close()
    with pytest.raises(SourceError, match=r"1\.bin: the source is closed"):
        read(ranges)


def test_many_pools_share_the_number_of_idle_handles() -> None:
    open_handles = set()

    class Handle:
        def __init__(self, _: int) -> None:
            open_handles.add(self)

        def close(self) -> None:
            open_handles.remove(self)

    pools = [FileHandlePool(Handle) for _ in range(256)]
    for pool in pools:
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(pool.borrow(0))
    assert len(open_handles) <= MAX_ALL_IDLE_HANDLES
    with pools[0].borrow(0) as handle:
        assert handle in open_handles
