"""Shards of exports: two in one pattern, and missing ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed import SourceError
from infeed_server.sources.shards import list_shards, warn_of_missing


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"")


@pytest.mark.parametrize("end", ["", ".tfrecord", "-{}.parquet"])
def test_shards_of_two_exports_are_refused(tmp_path: Path, end: str) -> None:
    hashes = iter(["0123456789abcdef", "89abcdef", "deadbeef00112233", "00000000", "11111111"])
    names = [f"x-0000{n}-of-0000{total}" for total in (2, 3) for n in range(total)]
    write(tmp_path, *[name + end.format(next(hashes)) for name in names])
    with pytest.raises(SourceError) as caught:
        list_shards([f"{tmp_path}/x-*"])
    rest = end.format("*")
    assert "shards of 2 exports: x-00000-of-00002" in caught.value.message
    one, other = (f"{tmp_path}/x-*-of-0000{total}{rest}" for total in (2, 3))
    assert caught.value.message.endswith(f"name one export: {one} or {other}")
    assert [len(list_shards([pattern])) for pattern in (one, other)] == [2, 3]
    assert len(list_shards([other, one])) == 5  # both are meant


def test_other_shards_are_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "a-0-of-1.tar", "b-0-of-2.tar", "b-1-of-2.tar", "c-1-of-2.tar", "c-2-of-2.tar")
    write(
        tmp_path,
        "d.tar",
        "e-7.tar",
        "f-0-of-1-left.tar",
        "f-0-of-2-right.tar",
        "f-1-of-2-right.tar",
    )
    files = list_shards([f"{tmp_path}/*.tar"])
    assert len(files) == 10
    warn_of_missing(files)
    assert not caplog.text


def test_missing_shards_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "a-00001-of-00004.tar", "a-00003-of-00004.tar")
    warn_of_missing(list_shards([f"{tmp_path}/*"]))
    assert f"{tmp_path}/a-*-of-00004.tar: 2 of 4 shards are there; missing: 0, 2" in caplog.text
