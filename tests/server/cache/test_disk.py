"""The store on disk: killed and concurrent writers, full disks and damaged files."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from infeed_server.cache import disk
from infeed_server.cache.disk import DiskStore

COUNT = 1000


def record(index: int) -> bytes:
    return random.Random(index).randbytes(500 + index % 100)


Open = Callable[..., DiskStore]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:

        def make(budget: int = 1 << 20) -> DiskStore:
            store = DiskStore(tmp_path, COUNT, budget)
            stack.callback(store.close)
            return store

        yield make


def kept(store: DiskStore) -> int:
    """Returns how many records are kept; all of them are right."""
    found = {index: store.get(index) for index in range(COUNT)}
    assert all(data in (None, record(index)) for index, data in found.items())
    return sum(data is not None for data in found.values())


def test_records_survive_a_restart(opened: Open) -> None:
    first = opened()
    for index in range(0, COUNT, 2):
        first.put(index, record(index))
    assert kept(first) == COUNT // 2
    first.close()
    second = opened()
    assert kept(second) == COUNT // 2
    second.put(1, record(1))
    assert second.get(1) == record(1)
    assert second.verify() == (COUNT // 2 + 1, 0)
    assert len(list(second.directory.glob("segment-*"))) == 1


def test_budget_holds_and_what_fits_is_kept(opened: Open) -> None:
    stores = [opened(100_000) for _ in range(3)]
    for index in range(COUNT):
        stores[index % 3].put(index, record(index))
        assert stores[0]._reserved_bytes() <= 100_000
    assert 150 <= kept(stores[1]) <= 200
    assert [kept(store) for store in stores] == [kept(stores[1])] * 3


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tests.server.cache.test_disk import COUNT, record
from infeed_server.cache.disk import DiskStore
store = DiskStore(Path(sys.argv[1]), COUNT, 1 << 20)
print("open", flush=True)
for index in list(range(COUNT)) * 1000:
    if index % 2 == int(sys.argv[2]) and store.get(index) is None:
        store.put(index, record(index))
"""


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_writers_leave_no_torn_record(opened: Open, tmp_path: Path, kills: int) -> None:
    rng, reader = random.Random(kills), opened()
    for number in range(kills):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(number % 2), *sys.path]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            while rng.random() < 0.8:
                kept(reader)
            writer.kill()
    assert kept(reader) > 0
    assert reader.verify()[1] == 0
    assert reader._reserved_bytes() <= 1 << 20
    assert len(list(tmp_path.glob("segment-*"))) == 1  # taken over each time


def _fill(directory: Path, first: int) -> None:
    store = DiskStore(directory, COUNT, 1 << 20)
    for index in range(COUNT):
        store.put((index + first) % COUNT, record((index + first) % COUNT))
    store.close()


def test_processes_write_at_the_same_time(opened: Open, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_fill, args=(tmp_path, 333 * n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    store = opened()
    assert kept(store) >= 600
    assert store._reserved_bytes() <= 1 << 20


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_full_disk_stops_writing_and_says_so(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    store, write, left = opened(), os.pwrite, [10_000]
    assert store.takes(0)

    def limited(descriptor: int, data: memoryview, offset: int) -> int:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(code, os.strerror(code))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", limited)
    with caplog.at_level(logging.WARNING):
        for index in range(COUNT):
            store.put(index, record(index))
    assert 10 <= kept(store) <= 20
    assert not store.takes(0)
    assert [entry.levelname for entry in caplog.records] == ["WARNING"]
    assert os.strerror(code) in caplog.text


@pytest.mark.parametrize("name", ["segment-1", "index"])
def test_flipped_bit_is_a_sample_that_is_not_kept(opened: Open, name: str) -> None:
    store = opened()
    for index in range(COUNT):
        store.put(index, record(index))
    path = store.directory / name
    for offset in range(0, 20_000, 997):
        content = bytearray(path.read_bytes())
        content[offset] ^= 1
        path.write_bytes(content)
    assert COUNT - 60 <= kept(store) < COUNT
    damaged = [index for index in range(COUNT) if store.get(index) is None]
    assert store.verify()[1] >= len(damaged) - 25
    for index in damaged:
        store.put(index, record(index))
    assert kept(store) == COUNT


def test_entry_of_another_sample_is_damage(opened: Open) -> None:
    (store := opened()).put(1, record(1))
    with (store.directory / "index").open("r+b") as index:
        index.seek(24)
        entry = index.read(24)
        index.write(entry)
    assert (store.get(1), store.get(2)) == (record(1), None)


def test_reserved_space_that_was_not_filled_is_used_later(opened: Open) -> None:
    for index in range(2):
        (store := opened(1 << 16)).put(index, record(index))
        store.close()
    (store := opened(1 << 16)).get(0)  # through another descriptor
    for index in range(COUNT):
        store.put(index, record(index))
    assert kept(store) >= 100
    store.close()
    opened().put(COUNT - 1, record(COUNT - 1))
    assert len(list(store.directory.glob("segment-*"))) == 1


@pytest.mark.parametrize("part", [7, COUNT // 4])
def test_index_is_read_in_parts(opened: Open, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(disk, "_PART", part)
    first = opened()
    for index in (*range(0, COUNT, 3), 2):
        first.put(index, record(index))
    first.close()
    (second := opened()).put(1, record(1))
    assert kept(second) == COUNT // 3 + 3
    assert second.verify() == (COUNT // 3 + 3, 0)


def test_segment_that_is_deleted_while_bytes_are_counted_is_no_error(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store := opened()).put(1, record(1))
    found = [store.directory / "segment-1", store.directory / "segment-2"]
    monkeypatch.setattr(Path, "glob", lambda *_: iter(found))
    assert 0 < store.used_bytes < 1 << 16


def test_closed_store_neither_reads_nor_writes(opened: Open) -> None:
    store = opened()
    store.put(1, record(1))
    store.close()
    segment = (store.directory / "segment-1").read_bytes()
    store.put(2, record(2))
    assert (store.get(1), store.get(2)) == (None, None)
    assert (store.directory / "segment-1").read_bytes() == segment
