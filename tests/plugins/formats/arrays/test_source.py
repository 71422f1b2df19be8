"""The `arrays` source: large files, arrays in memory, and errors."""

from __future__ import annotations

import contextlib
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.harness.examples import examples

from infeed import SourceError
from infeed_formats.arrays import npy_files
from infeed_formats.arrays.npy_files import open_npy
from infeed_formats.arrays.source import ArrayReader, ArraysSource

X = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
Y = np.arange(10, dtype=np.int64)


def open_arrays(arrays: Any, **options: Any) -> ArrayReader:
    return ArraysSource.model_validate({"arrays": arrays, **options}).open()


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    np.savez(tmp_path / "train.npz", x=X, y=Y)
    return tmp_path / "train.npz"


@pytest.fixture
def npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


def test_rows_of_an_npz_are_read_in_any_order(npz: Path) -> None:
    source = open_arrays(npz)
    assert len(source) == 10
    assert source.parsed
    assert source.columns == {
        "x": tf.TensorSpec((2, 3), tf.float32),
        "y": tf.TensorSpec((), tf.int64),
    }
    indices = np.array([9, 0, 0, 4])
    read = source.read(indices)
    np.testing.assert_array_equal(read["x"], X[indices])
    np.testing.assert_array_equal(read["y"], Y[indices])
    assert read["x"].flags.c_contiguous
    assert type(read["x"]) is np.ndarray
    assert source.provenance(3).file == str(npz)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any .npy is too large for the memory."""
    monkeypatch.setattr(npy_files, "_MAX_LOADED", -1)


@pytest.mark.usefixtures("large")
def test_large_npy_is_not_in_memory(npy: Path) -> None:
    stored = open_npy(str(npy))
    assert not stored.array.flags.owndata
    rows = stored.rows(np.array([9, 0, 9]))
    assert (rows == X[[9, 0, 9]]).all()
    assert rows.flags.owndata


def test_small_npy_is_in_memory(npy: Path) -> None:
    source = open_arrays(npy)
    os.truncate(npy, 200)
    np.testing.assert_array_equal(source.read(np.array([9]))["x"], X[[9]])


def test_npy_files_become_fields(tmp_path: Path) -> None:
    np.save(tmp_path / "photo.npy", X)
    np.save(tmp_path / "label.npy", Y)
    assert list(open_arrays(tmp_path / "photo.npy").columns) == ["photo"]
    source = open_arrays({"a": str(tmp_path / "photo.npy"), "b": tmp_path / "label.npy"})
    assert list(source.columns) == ["a", "b"]
    np.testing.assert_array_equal(source.read(np.array([2, 1]))["b"], [2, 1])
    assert "label.npy" in source.provenance(0).file


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=st.sampled_from(["<f4", ">f4", "<i8", ">u2", "bool", "u1", "f2", "S5", "<U4", ">U4"]),
    fortran=st.booleans(),
    storage=st.sampled_from(["npy", "large", "npz", "compressed", "memory", "gfile", "objects"]),
    indices=st.lists(st.integers(0, 6), max_size=10),
)
def test_rows_equal_numpy(
    dtype: str, fortran: bool, storage: str, indices: list[int], tmp_path: Path
) -> None:
    array = np.arange(42).reshape(7, 3, 2).astype(dtype, order="F" if fortran else "C")
    if storage in ("memory", "objects"):
        has_text = storage == "objects" and array.dtype.kind in "SU"
        source = open_arrays({"a": array.astype(object) if has_text else array})
    elif storage in ("npy", "large", "gfile"):
        np.save(tmp_path / "a.npy", array)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(npy_files, "_MAX_LOADED", -1 if storage == "large" else 1 << 20)
            source = open_arrays(f"{'file://' if storage == 'gfile' else ''}{tmp_path}/a.npy")
    else:
        (np.savez if storage == "npz" else np.savez_compressed)(tmp_path / "a.npz", a=array)
        source = open_arrays(tmp_path / "a.npz")
    rows = source.read(np.array(indices, np.int64))["a"]
    selected = array[indices]
    if array.dtype.kind in "SU":
        assert rows.dtype == object
        expected = [v if isinstance(v, bytes) else v.encode() for v in selected.ravel().tolist()]
        assert rows.ravel().tolist() == expected
        assert source.columns["a"].dtype == tf.string
    else:
        np.testing.assert_array_equal(rows, selected)
        assert rows.dtype == array.dtype.newbyteorder("=")
        assert rows.dtype.isnative
        assert source.columns["a"].dtype == tf.as_dtype(rows.dtype)
    assert rows.shape == (len(indices), 3, 2)
    assert rows.flags.c_contiguous


def test_arrays_of_one_length_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x_train=X, y_train=Y, x_test=X[:4], y_test=Y[:4] + 1)
    listed = "x_test: 4, x_train: 10, y_test: 4, y_train: 10; .* fields: {x_train: x_train, y_train"
    with pytest.raises(SourceError, match=f"differ in their first dimension: {listed}"):
        open_arrays(path)
    train = open_arrays(path, fields={"x": "x_train", "y": "y_train"})
    test = open_arrays(path, fields={"x": "x_test", "y": "y_test"})
    assert (len(train), train.read(np.array([9]))["y"]) == (10, [9])
    assert (len(test), test.read(np.array([3]))["y"]) == (4, [4])
    with pytest.raises(SourceError, match=r"no array 'x_tran'.*did you mean 'x_train'"):
        open_arrays(path, fields={"x": "x_tran"})


@pytest.mark.parametrize("limit", [-1, 1 << 20])
@pytest.mark.parametrize("prefix", ["", "file://"])
def test_several_arrays_in_one_npy_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, prefix: str
) -> None:
    monkeypatch.setattr(npy_files, "_MAX_LOADED", limit)
    with (tmp_path / "a.npy").open("wb") as file:
        np.save(file, X)
        np.save(file, Y)
    with pytest.raises(SourceError, match="has 448 bytes after its header, not 240"):
        open_arrays(f"{prefix}{tmp_path}/a.npy")


def test_a_header_with_types_of_numpy_is_refused(npy: Path) -> None:
    content = npy.read_bytes().replace(b"(10, 2, 3), }", b"(np.int64(10), 2, 3), }")
    npy.write_bytes(content)
    with pytest.raises(
        SourceError, match=r"has a header that cannot be read: {'descr': .*np.int64"
    ):
        open_arrays(npy)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(3), "is a single value"),
        (np.zeros(3, np.complex64), "complex64; .*.real.*; supported: text, bytes, bool, int8"),
        (np.zeros(3, "datetime64[s]"), r"datetime64\[s\]; convert it: .astype\('int64'\)"),
        (np.zeros(3, "timedelta64[s]"), r"convert it: .astype\('int64'\)"),
        (np.zeros(3, [("a", "i4")]), "an array of each part; supported: text"),
        (np.zeros(3, np.longdouble), r"convert it: .astype\('float64'\)"),
        (np.zeros(3, "V2"), r"bfloat16 .* .astype\('float32'\)"),
        (np.zeros((0, 3)), "are empty"),
        (
            np.array([object(), b"x"]),
            "the array 'a' holds a object, which is neither a number, text nor bytes",
        ),
    ],
)
def test_invalid_arrays_are_refused(array: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        open_arrays({"a": array})


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, np.save])
def test_pickled_objects_are_refused(tmp_path: Path, save: Any) -> None:
    objects = np.array([{"a": 1}], object)
    if save is np.save:
        np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    else:
        save(tmp_path / "a.npz", a=objects)
    with pytest.raises(SourceError, match=r"cannot read .*: has pickled objects, which are"):
        open_arrays(next(tmp_path.glob("a.np*")))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, np.save])
def test_damaged_files_are_read_or_refused(tmp_path: Path, save: Any) -> None:
    file = tmp_path / ("a.npy" if save is np.save else "a.npz")
    save(file, X[:3])
    content = file.read_bytes()
    for keep in (0, 3, 100):
        file.write_bytes(content[:keep])
        with pytest.raises(SourceError, match=rf"cannot read '{file}' as {file.suffix}"):
            open_arrays(file)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        # Some changes, such as one of the archive's date, do no harm.
        with contextlib.suppress(SourceError):
            open_arrays(file)


def test_invalid_paths_are_refused(tmp_path: Path, npz: Path) -> None:
    with pytest.raises(SourceError, match="no file matches"):
        open_arrays(tmp_path / "none.npz")
    (tmp_path / "a.csv").write_text("1")
    with pytest.raises(SourceError, match=r"neither \.npy nor \.npz"):
        open_arrays(tmp_path / "a.csv")
    with pytest.raises(SourceError, match=r"arrays\.x: .* is not a \.npy file"):
        open_arrays({"x": str(npz)})
    np.savez(tmp_path / "b.npz", x=X)
    with pytest.raises(SourceError, match="matches 2 files"):
        open_arrays(tmp_path / "*.npz")
    with pytest.raises(
        ValidationError, match=r"neither the path of a \.npy file nor a NumPy array"
    ):
        ArraysSource(arrays={"x": 3})
    with pytest.raises(ValidationError, match="at least one array"):
        ArraysSource(arrays={})


@pytest.mark.usefixtures("large")
def test_file_that_is_truncated_while_it_is_read_is_refused(npy: Path) -> None:
    stored = open_npy(str(npy))
    assert stored.mapped is not None
    check = stored.mapped.check

    def check_and_truncate() -> None:
        check()
        os.truncate(npy, 200)

    stored.mapped.check = check_and_truncate  # type: ignore[method-assign]
    with pytest.raises(SourceError, match="changed since it was opened"):
        stored.rows(np.array([9]))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("before", [True, False])
def test_mapped_file_that_is_modified_is_refused(npy: Path, before: bool) -> None:
    np.save(npy, np.asfortranarray(X))  # whose rows are spread over the file

    class Rows(np.ndarray[Any, Any]):
        """Rows of a file: to read them ends the process when it has become shorter."""

        def __getitem__(self, indices: Any) -> Any:
            assert not before
            os.utime(npy, ns=(1, 1))
            return super().__getitem__(indices)

    stored = open_npy(str(npy))
    source = ArrayReader({"x": replace(stored, array=stored.array.view(Rows))})
    if before:
        os.utime(npy, ns=(1, 1))
    with pytest.raises(SourceError, match="changed since it was opened"):
        source.read(np.array([0]))


@pytest.mark.usefixtures("large")
def test_mapped_file_is_read_after_its_path_is_replaced(tmp_path: Path, npy: Path) -> None:
    source = open_arrays(npy)
    np.save(tmp_path / "new.npy", X + 1)
    (tmp_path / "new.npy").replace(npy)
    np.testing.assert_array_equal(source.read(np.array([1]))["x"], X[[1]])


def test_identity_follows_the_content(tmp_path: Path, npz: Path) -> None:
    first = open_arrays(npz).identity
    os.utime(npz, ns=(1, 1))
    assert open_arrays(f"file://{npz.rename(tmp_path / 'moved.npz')}").identity == first
    np.savez_compressed(npz, x=X, y=Y)
    assert open_arrays(npz).identity == first
    np.savez(npz, x=X, y=Y + 1)
    assert open_arrays(npz).identity != first
    memory = {"x": X, "y": Y}
    assert open_arrays(memory).identity == open_arrays(dict(memory)).identity
    assert open_arrays(memory).identity != open_arrays({"x": X, "y": Y + 1}).identity


def damage_data(path: Path) -> None:
    """Changes one byte of the first array's data."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.infolist()[0]
    content[info.header_offset + 30 + len(info.filename) + info.file_size - 1] ^= 1
    path.write_bytes(content)


def test_damaged_npz_is_refused(npz: Path) -> None:
    damage_data(npz)
    with pytest.raises(SourceError, match=r"as \.npz: Bad CRC-32 for file 'x\.npy'"):
        open_arrays(npz)
