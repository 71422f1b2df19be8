"""Rows of Parquet files: values, row groups, identity, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed import SourceError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from infeed_server.datasets.parquet import ParquetRows  # noqa: E402
from infeed_server.sources import PythonSource  # noqa: E402

COLUMNS = {
    "id": pyarrow.array(range(10), pyarrow.int16()),
    "ok": [number % 2 == 0 for number in range(10)],
    "text": [f"t{number}" for number in range(10)],
    "word": pyarrow.array(["a", "b"] * 5).dictionary_encode(),
    "box": [[0.5, float(number)] for number in range(10)],
    "photo": [{"bytes": b"%d" % number, "path": None} for number in range(10)],
    "maybe": [None if number == 3 else number for number in range(10)],
}


def write(path: Path, columns: Any = None, **options: Any) -> Path:
    parquet.write_table(pyarrow.table(columns or COLUMNS), path, row_group_size=4, **options)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.parquet")


def test_rows_have_the_types_of_the_schema(file: Path) -> None:
    rows = ParquetRows(file)
    assert len(rows) == 10
    seven, three = rows.__getitems__([7, 3])
    assert (seven["id"], seven["id"].dtype) == (7, np.int16)
    assert seven["ok"].dtype == np.bool_
    assert (seven["text"], seven["word"], seven["photo.bytes"]) == ("t7", "b", b"7")
    np.testing.assert_array_equal(seven["box"], np.array([0.5, 7.0]), strict=True)
    assert (three["id"], three["maybe"], three["photo.path"]) == (3, None, None)
    with pytest.raises(IndexError, match="rows are from 0 to 9"):
        rows[10]


def test_files_follow_each_other_and_columns_are_chosen(file: Path) -> None:
    write(file.parent / "rows2.parquet")
    rows = ParquetRows(file.parent / "rows*.parquet", columns=["photo.bytes", "id"])
    assert len(rows) == 20
    order = [15, 0, 9, 10, 3]
    assert [row["id"] for row in rows.__getitems__(order)] == [5, 0, 9, 0, 3]
    assert set(rows[0]) == {"photo.bytes", "id"}


def test_row_groups_are_read_once_while_they_fit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = parquet.ParquetFile.read_row_group

    def counted(self: Any, group: int, **options: Any) -> Any:
        read.append(group)
        return original(self, group, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    rows = ParquetRows(file, columns=["id"])
    for index in (0, 9, 1, 8, 2):
        assert rows[index]["id"] == index
    assert read == [0, 2]
    small = ParquetRows(file, columns=["id"], cache_bytes=1)
    assert [small[index]["id"] for index in (0, 1, 9, 0)] == [0, 1, 9, 0]
    assert read == [0, 2, 0, 2, 0]


def test_fingerprint_is_that_of_the_content(file: Path, tmp_path: Path) -> None:
    same = write(tmp_path / "same.parquet")
    assert ParquetRows(file).fingerprint == ParquetRows(same).fingerprint
    other = write(tmp_path / "other.parquet", {**COLUMNS, "text": ["other"] * 10})
    fingerprints = {
        ParquetRows(file).fingerprint,
        ParquetRows(other).fingerprint,
        ParquetRows(file, columns=["id"]).fingerprint,
        ParquetRows([file, same]).fingerprint,
    }
    assert len(fingerprints) == 4


def test_files_that_cannot_be_read_are_named(file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    for files, message in (
        (tmp_path / "missing.parquet", "cannot read .*missing.parquet'"),
        (broken, "cannot read .*broken.parquet': "),
        (tmp_path / "no-*.parquet", "no file matches .*no-"),
        ([file, write(tmp_path / "x.parquet", {"id": [1]})], "x.parquet has other columns or typ"),
    ):
        with pytest.raises(SourceError, match=message):
            ParquetRows(files)


@pytest.mark.parametrize("cut", [0, 700], ids=["overwritten", "truncated"])
def test_file_that_changed_refuses_the_batch(file: Path, tmp_path: Path, cut: int) -> None:
    source = PythonSource(python=ParquetRows(file, cache_bytes=1), fields={"id": "int16"}).open()
    assert source.read(np.array([3, 1]))["id"].tolist() == [3, 1]
    other = write(tmp_path / "other.parquet", {**COLUMNS, "id": pyarrow.array([7] * 10, "int16")})
    with file.open("r+b") as opened:
        opened.write(other.read_bytes()[: cut or None])
        opened.truncate()
    with pytest.raises(SourceError, match=r"rows\.parquet changed since it was opened; restart"):
        source.read(np.array([9]))
    source.close()


def test_open_file_is_read_after_its_path_is_replaced(file: Path, tmp_path: Path) -> None:
    rows = ParquetRows(file)
    write(tmp_path / "other.parquet", {"id": [7] * 10}).replace(file)
    assert rows[9]["id"] == 9
