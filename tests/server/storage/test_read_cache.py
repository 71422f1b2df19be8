"""The cache of byte ranges: each block is requested once, and every byte is right."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.harness.object_server import ObjectServer
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed.shared.errors import ConfigError
from infeed_server.cache.directory import default_root
from infeed_server.storage.files import list_files
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.read_cache import BUDGET_VARIABLE, VARIABLE

SIZE = 9 << 20
"""Bytes of the larger object: three blocks."""
CONTENT = random.Random(1).randbytes(SIZE)


@pytest.fixture
def folder(store: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, and two objects in the store."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "reads"))
    monkeypatch.setenv(BUDGET_VARIABLE, "64MiB")
    store.objects.update({"bkt/a": CONTENT, "bkt/b": b"small"})
    return tmp_path / "reads"


def check(ranges: RangeReader, count: int = 200, seed: int = 1) -> None:
    """Reads ranges of both objects, and compares them."""
    draw = random.Random(seed)
    begins = [draw.randrange(SIZE) for _ in range(count)]
    sizes = [draw.randrange(min(300_000, SIZE - begin + 1)) for begin in begins]
    files = np.array([0] * count + [1])
    found = ranges.read(files, np.array([*begins, 1]), np.array([*sizes, 3]))
    for begin, size, content in zip(begins, sizes, found.tolist(), strict=False):
        assert content == CONTENT[begin : begin + size]
    assert found[-1] == b"mal"


def opened() -> RangeReader:
    return RangeReader(list_files(["s3://bkt/*"]))


def requests(store: ObjectServer) -> int:
    return sum("range" in request.headers for request in store.requests)


def test_block_is_requested_once(store: ObjectServer, folder: Path) -> None:
    ranges = opened()
    check(ranges)
    assert requests(store) == 4
    check(ranges, seed=2)
    ranges.close()
    restarted = opened()
    check(restarted, seed=3)
    assert requests(store) == 4
    assert store.sent_bytes < SIZE + 10_000
    restarted.close()


def test_misses_at_once_make_one_request(store: ObjectServer, folder: Path) -> None:
    ranges = opened()
    store.faults.delay = 0.05
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: check(ranges, 20, seed), range(16)))
    assert requests(store) == 4
    ranges.close()


def test_damaged_chunk_is_requested_again(store: ObjectServer, folder: Path) -> None:
    ranges = opened()
    check(ranges)
    ranges.close()
    for segment in folder.glob("*/segment-*"):
        data = bytearray(segment.read_bytes())
        data[500_000] ^= 1
        segment.write_bytes(data)
    restarted = opened()
    check(restarted, seed=2)
    assert requests(store) == 5
    restarted.close()


def test_budget_bounds_the_cache(
    store: ObjectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BUDGET_VARIABLE, "5MiB")
    ranges = opened()
    for seed in range(5):
        check(ranges, seed=seed)
    other = RangeReader(list_files(["s3://bkt/a"]))  # the budget is of the whole folder
    (content,) = other.read(np.array([0]), np.array([5]), np.array([SIZE - 5]))
    assert content == CONTENT[5:]
    files = list(folder.glob("*/segment-*"))
    assert 4 << 20 <= sum(file.stat().st_size for file in files) <= 5 << 20
    ranges.close()
    other.close()


def test_replaced_object_is_another_cache(store: ObjectServer, folder: Path) -> None:
    ranges = opened()
    check(ranges)
    store.objects["bkt/b"] = b"SMALL"
    check(ranges)  # the kept bytes are those that were listed
    (content,) = opened().read(np.array([1]), np.array([0]), np.array([5]))
    assert content == b"SMALL"
    ranges.close()


def test_faults_are_not_kept(store: ObjectServer, folder: Path) -> None:
    store.faults.error_rate = store.faults.cut_rate = 0.3
    ranges = opened()
    check(ranges)
    check(ranges)
    ranges.close()


def test_unusable_settings(
    store: ObjectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BUDGET_VARIABLE, "much")
    with pytest.raises(ConfigError, match="INFEED_READ_CACHE_BUDGET='much' should be bytes, or"):
        opened()
    monkeypatch.setenv(BUDGET_VARIABLE, "1GiB")
    monkeypatch.setenv(VARIABLE, "/proc/none")
    with pytest.raises(ConfigError, match=r"cannot use the cache /proc/none/.*give a path"):
        opened()


def test_command_lists_verifies_and_clears(store: ObjectServer, folder: Path) -> None:
    ranges = opened()
    check(ranges)
    ranges.close()

    def run(*words: str) -> Result:
        return CliRunner().invoke(new_app(), ["cache", *words])

    lines = run("list", "s3://bkt/").output.splitlines()
    assert lines[0] == f"no cache in {default_root()}"
    assert lines[1] == f"caches in {folder}, 67.1 MB for all of them:"
    (row,) = [line for line in lines if "reads of s3://bkt/a and 1 more" in line]
    assert "73 of 73" in row
    (kept,) = json.loads(run("verify", "--json").output)
    assert (kept["budget"], kept["kept"], kept["damaged"]) == (64 << 20, 73, 0)
    with (Path(kept["path"]) / "segment-1").open("r+b") as segment:
        segment.truncate(100)
    assert run("verify").exit_code == 1
    assert run("clear").exit_code == 0
    assert not Path(kept["path"]).exists()
