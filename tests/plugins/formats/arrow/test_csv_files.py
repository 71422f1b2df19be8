"""The `csv` source: types of columns, arrays of several, bad cells, errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed_formats.arrow.csv_files import CsvRows, CsvSource

pytest.importorskip("pyarrow")

IRIS = 'width,height,n,species,code,ok\n1,2.5,7,cat,007,True\n3,-1e3,-8,"a,\nb",010,false\n'


def write(folder: Path, text: str | bytes, name: str = "a.csv") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


def opened(pattern: Path, columns: Any = None) -> CsvRows:
    return CsvSource.model_validate({"csv": str(pattern), "columns": columns}).open()


def rows(source: CsvRows, *indices: int) -> dict[str, Any]:
    return {name: values.tolist() for name, values in source.read(np.array(indices)).items()}


@pytest.mark.parametrize("prefix", ["", "\N{BYTE ORDER MARK}"])
def test_each_column_is_a_field(tmp_path: Path, prefix: str) -> None:
    source = opened(write(tmp_path, prefix + IRIS.replace("\n1", "\r\n1")))
    assert {name: spec.dtype for name, spec in source.columns.items()} == {
        "width": tf.int64,
        "height": tf.float64,
        "n": tf.int64,
        "species": tf.string,
        "code": tf.string,
        "ok": tf.bool,
    }
    assert rows(source, 1, 0) == {
        "width": [3, 1],
        "height": [-1000, 2.5],
        "n": [-8, 7],
        "species": [b"a,\nb", b"cat"],
        "code": [b"010", b"007"],
        "ok": [False, True],
    }


def test_columns_become_fields_and_arrays(tmp_path: Path) -> None:
    path = write(tmp_path, IRIS)
    assert rows(opened(path, ["species", "n"]), 0) == {"species": [b"cat"], "n": [7]}
    source = opened(path, {"x": ["height", "width", "n"], "y": "n", "z": ["code"]})
    assert source.columns["x"] == tf.TensorSpec((3,), tf.float64)
    assert rows(source, 1, 0) == {
        "x": [[-1000, 3, -8], [2.5, 1, 7]],
        "y": [-8, 7],
        "z": [[b"010"], [b"007"]],
    }
    with pytest.raises(SourceError, match=r"has no column 'with' .did you mean 'width'"):
        opened(path, {"x": ["with"]})


def test_types_are_of_all_files_and_rows(tmp_path: Path) -> None:
    write(tmp_path, "a,b\n1,1\n", "1.csv")
    write(tmp_path, "a,b\n2,1\n.5,x\n", "2.csv")
    source = opened(tmp_path / "*.csv")
    assert rows(source, 2, 0) == {"a": [0.5, 1], "b": [b"x", b"1"]}
    assert source.provenance(1).file == f"{tmp_path}/2.csv"
    write(tmp_path, "b,a\n1,1\n", "3.csv")
    with pytest.raises(SourceError, match=r"3.csv and .*1.csv differ in columns or their order"):
        opened(tmp_path / "*.csv")


@pytest.mark.parametrize(
    ("cells", "data_type"),
    [
        (f"{2**63 - 1} -1 0", tf.int64),
        ("+1 -1", tf.float64),
        ("-0 5. 1e5", tf.float64),
        (f"{2**63} 1", tf.string),  # a float64 would be another number
        ("01 2", tf.string),
        ("1.5 -01", tf.string),
        ("1 nan", tf.string),
        ("False true", tf.bool),
        (f"{2**53} {-(2**54)} {2**54}.0 .5", tf.float64),
        ("6.022e23 1.15292150460684698e+18 1e300", tf.float64),  # floats as other programs write
    ],
)
def test_cells_decide_the_type(tmp_path: Path, cells: str, data_type: tf.DType) -> None:
    path = write(tmp_path, "\n".join(["a,b", *(f"{cell},{cell}" for cell in cells.split())]))
    assert opened(path, {"a": "a", "x": ["b", "a"]}).columns == {
        "a": tf.TensorSpec((), data_type),
        "x": tf.TensorSpec((2,), data_type),
    }


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ((2**53 + 1, 0.5), f"'a': {2**53 + 1} would lose digits among fractions; omit"),
        ((f"{2**53 + 1}.0", 0.5), f"'a': {2**53 + 1}.0 would lose digits"),
        ((f"-{2**53 + 1}e0", 0.5), f"'a': -{2**53 + 1}e0 would lose digits"),
        (("true", 1), "'a': 1 is a number among truth values; write 0 and 1, or"),
    ],
)
def test_cells_that_would_change_are_refused(tmp_path: Path, cells: Any, problem: str) -> None:
    path = write(tmp_path, "a,b\n" + "".join(f"{cell},{cells[1]}\n" for cell in cells))
    for columns in ("a", ["a", "b"]):
        with pytest.raises(SourceError, match=re.escape(problem)):
            opened(path, {"x": columns})
    assert rows(opened(path, ["b"]), 0)["b"] == [cells[1]]


def test_an_empty_cell_is_a_bad_sample(tmp_path: Path) -> None:
    source = opened(write(tmp_path, 'a,b,c\n1,x,2\n,y,3\n3,,4\n4,"",\n'))
    assert rows(source, 0) == {"a": [1], "b": [b"x"], "c": [2]}
    for row, name in ((1, "a"), (2, "b"), (3, "c")):
        with pytest.raises(SampleError, match=f"row {row}: its column '{name}' is null"):
            source.read(np.array([0, row]))
    both = opened(tmp_path / "a.csv", {"x": ["a", "c"]})
    assert rows(both, 2, 0) == {"x": [[3, 4], [1, 2]]}
    with pytest.raises(SampleError, match="row 3: its column 'x' contains a null"):
        both.read(np.array([2, 3]))


def test_columns_without_a_type_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, ",a,b,b,c\n0,1,2,3,\n")
    source = opened(path)
    assert (rows(source, 0), [*source.left_out]) == ({"a": [1]}, ["", "b", "c"])
    with pytest.raises(SourceError, match="'b' is one of several with this name"):
        opened(path, ["b"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a UTF-8 CSV .*Empty CSV file"),
        ("a,b\n", "has no column that can be served"),
        ("a,b\n1\n", "Expected 2 columns, got 1"),
        ("a,b\nä,1\n".encode("latin-1"), "invalid UTF8"),
        ("a,b\n1,1\n".encode("utf-16"), "not a UTF-8 CSV"),
        ("5.1,3\n4.9,2\n", "first line has no column names: 5.1, 3; add a line of names"),
        ("a;b\n1;2\n", "its cells are separated by ';'; use commas"),
        ("a;b\n1,5;2,5\n", "its cells are separated by ';'; .* points in numbers"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str | bytes, problem: str) -> None:
    with pytest.raises(SourceError, match=f"{tmp_path}/a.csv.*{problem}"):
        opened(write(tmp_path, text))


def test_identity_is_of_content_and_fields(tmp_path: Path) -> None:
    one = opened(write(tmp_path, "0,1\n1,2\n")).identity
    assert opened(write(tmp_path, "0,1\n1,2\n", "b.csv")).identity == one
    others = [
        opened(write(tmp_path, "0,1\n1,3\n")).identity,
        *(opened(tmp_path / "b.csv", columns).identity for columns in (["0"], {"1": "0"})),
        *(opened(tmp_path / "b.csv", {"x": names}).identity for names in (["0", "1"], ["1", "0"])),
    ]
    assert len({one, *others}) == 6
