"""The `parquet` source: values, row groups, caches, identity, errors."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import InfeedError, MissingExtraError, SampleError, SourceError
from infeed_formats.arrow.parquet import ParquetSource
from infeed_formats.arrow.row_groups import RowGroups
from infeed_formats.arrow.tables import TableReader

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 10


def columns() -> dict[str, Any]:
    return {
        "photo": [{"bytes": b"photo %d" % n, "path": None} for n in range(ROWS)],
        "id": pa.array(range(ROWS), pa.int16()),
        "text": [f"t{n}" for n in range(ROWS)],
    }


def write(path: Path, table: dict[str, Any] | None = None, **options: Any) -> Path:
    options = {"row_group_size": 4, "write_page_checksum": True, **options}
    pq.write_table(pa.table(table or columns()), path, **options)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.parquet")


def opened(path: Any, names: list[str] | None = None, **options: Any) -> TableReader:
    value = [str(item) for item in path] if isinstance(path, list) else str(path)
    definition = {"parquet": value, "columns": names, **options}
    return ParquetSource.model_validate(definition).open()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """File and number of each row group that is decoded."""
    found: list[tuple[int, int]] = []
    original = RowGroups._decode

    def counted(self: RowGroups, group: Any, contents: Any) -> Any:
        found.append((group.file, group.number))
        return original(self, group, contents)

    monkeypatch.setattr(RowGroups, "_decode", counted)
    return found


TYPES: list[tuple[Any, tf.TensorSpec, Any]] = [
    (pa.array([-3], "int8"), tf.TensorSpec((), tf.int8), -3),
    (pa.array([2**64 - 1], "uint64"), tf.TensorSpec((), tf.uint64), 2**64 - 1),
    (pa.array([1.5], "double").cast("halffloat"), tf.TensorSpec((), tf.float16), 1.5),
    (pa.array([True]), tf.TensorSpec((), tf.bool), True),
    (pa.array(["ä"]), tf.TensorSpec((), tf.string), "ä".encode()),
    (pa.array([b"\xff\0"]), tf.TensorSpec((), tf.string), b"\xff\0"),
    (pa.array(["ä"], pa.string_view()), tf.TensorSpec((), tf.string), "ä".encode()),
    (
        pa.array([["a", "b"]], pa.list_(pa.string_view())),
        tf.TensorSpec((None,), tf.string),
        [b"a", b"b"],
    ),
    (pa.array(["a"]).dictionary_encode(), tf.TensorSpec((), tf.string), b"a"),
    (pa.array([7], pa.timestamp("us", "UTC")), tf.TensorSpec((), tf.int64), 7),
    (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), tf.TensorSpec((2,), tf.int8), [1, 2]),
    (pa.array([[1, 2, 3]]), tf.TensorSpec((None,), tf.int64), [1, 2, 3]),
    (pa.array([[]], pa.list_(pa.float32())), tf.TensorSpec((None,), tf.float32), []),
    (pa.array([[[1, 2], [3, 4]]]), tf.TensorSpec((None, None), tf.int64), [[1, 2], [3, 4]]),
    (
        pa.array([[[1.0, 2.0]]], pa.list_(pa.list_(pa.float64(), 2))),
        tf.TensorSpec((None, 2), tf.float64),
        [[1.0, 2.0]],
    ),
]


@pytest.mark.parametrize(("column", "spec", "value"), TYPES, ids=lambda v: str(v)[:20])
def test_types_become_fields(
    tmp_path: Path, parse: Any, column: Any, spec: tf.TensorSpec, value: Any
) -> None:
    source = opened(write(tmp_path / "t.parquet", {"x": column}))
    has_fixed_shape = spec.shape.is_fully_defined()
    assert source.parsed == has_fixed_shape
    sample = tf.data.Dataset.from_tensor_slices(source.read(np.array([0]))).map(source.parse)
    assert sample.element_spec["x"].dtype == spec.dtype
    assert sample.element_spec["x"].shape.as_list() == spec.shape.as_list()
    np.testing.assert_array_equal(parse(source, 0)["x"], np.array(value))


def test_rows_of_several_files_are_read_in_any_order(file: Path) -> None:
    write(file.parent / "rows2.parquet")
    source = opened(file.parent / "rows*.parquet", ["photo.bytes", "id"])
    assert len(source) == 2 * ROWS
    read = source.read(np.array([15, 0, 9, 10, 3, 3]))
    assert read["id"].tolist() == [5, 0, 9, 0, 3, 3]
    assert read["id"].dtype == np.int16
    assert read["photo.bytes"].tolist()[:2] == [b"photo 5", b"photo 0"]
    assert list(read) == ["photo.bytes", "id"]
    place = source.provenance(14)
    assert place.file == str(file.parent / "rows2.parquet")


def test_group_is_read_once_while_it_is_kept(file: Path, reads: list[tuple[int, int]]) -> None:
    source = opened(file, ["id"])
    source.read(np.array([0, 9, 1, 8, 2]))
    source.read(np.array([3, 9]))
    assert reads == [(0, 0), (0, 2)]


def test_group_that_was_used_longest_ago_is_evicted(
    tmp_path: Path, reads: list[tuple[int, int]]
) -> None:
    big = {"x": [bytes([n]) * (400 << 10) for n in range(4)]}
    source = opened(write(tmp_path / "x.parquet", big, row_group_size=1), cache=1 << 20)
    for index in (0, 1, 0, 2, 0, 1):
        assert source.read(np.array([index]))["x"][0][:1] == bytes([index])
    assert [number for _, number in reads] == [0, 1, 2, 1]


@pytest.mark.parametrize("remote", [False, True], ids=["local", "objects"])
def test_only_footers_and_needed_chunks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    if remote:
        pytest.importorskip("obstore")
    from infeed_server.storage.ranges import RangeReader

    noise = random.Random(0).randbytes
    table = {"a": [noise(50_000) for _ in range(8)], "b": list(range(8))}
    file = write(tmp_path / "x.parquet", table, row_group_size=2)
    sizes: list[int] = []
    original = RangeReader.read

    def counted(self: RangeReader, files: Any, offsets: Any, wanted: Any) -> Any:
        sizes.append(int(wanted.sum()))
        return original(self, files, offsets, wanted)

    monkeypatch.setattr(RangeReader, "read", counted)
    source = opened(f"file://{file}" if remote else file, ["b"])
    assert sizes[0] == 64 << 10
    assert sum(sizes[1:]) == 0
    assert source.read(np.array([5, 0]))["b"].tolist() == [5, 0]
    assert sum(sizes[1:]) < 1000
    everything = opened(f"file://{file}" if remote else file)
    assert everything.read(np.array([7]))["a"][0] == table["a"][7]
    assert everything.identity == opened(file).identity


def test_long_footers_are_read(tmp_path: Path) -> None:
    table = {f"column {n}": [b"%d" % n * 40] for n in range(400)}
    file = write(tmp_path / "wide.parquet", table)
    assert int.from_bytes(file.read_bytes()[-8:-4], "little") > 64 << 10
    source = opened([file, write(tmp_path / "x.parquet", table)])
    assert source.read(np.array([1]))["column 399"][0] == b"399" * 40


def test_identity_is_of_the_content(file: Path, tmp_path: Path) -> None:
    same = write(tmp_path / "same.parquet")
    os.utime(same, (1, 1))
    assert opened(file).identity == opened(same).identity
    assert opened(file).places.stamp != opened(same).places.stamp
    other = write(tmp_path / "other.parquet", {**columns(), "text": ["other"] * ROWS})
    different = [
        opened(file).identity,
        opened(other).identity,
        opened(file, ["id"]).identity,
        opened([file, same]).identity,
    ]
    assert len(set(different)) == 4


def write_partitions(folder: Path, values: list[str], **table: Any) -> str:
    for number, value in enumerate(values):
        (folder / value).mkdir(parents=True)
        write(folder / value / "0.parquet", {"x": [number, number], **table})
    return f"{folder}/**/*.parquet"


def test_folders_of_partitions_are_columns(tmp_path: Path) -> None:
    folders = ["label=cat/n=-1", "label=d%20g/n=0", "label=d%20g/n=20"]
    pattern = write_partitions(tmp_path / "run=3", folders)
    source = opened(pattern)
    assert list(source.columns) == ["x", "label", "n"]
    rows = source.read(np.array([5, 0, 3]))
    assert (rows["x"].tolist(), rows["n"].tolist()) == ([2, 0, 1], [20, -1, 0])
    assert rows["label"].tolist() == [b"d g", b"cat", b"d g"]
    assert opened(pattern, ["n"]).read(np.array([4]))["n"].tolist() == [20]
    assert opened(pattern, ["run"]).read(np.array([4]))["run"].tolist() == [3]
    assert opened(write_partitions(tmp_path / "run=4", folders)).identity == source.identity
    folders[0] = "label=bat/n=-1"
    assert opened(write_partitions(tmp_path / "b", folders)).identity != source.identity


def test_null_is_a_bad_sample(tmp_path: Path) -> None:
    table = {"a": [1, 2, None, 4, 5, None], "l": [[1], [1], [1], [1, None], [1], None]}
    source = opened(write(tmp_path / "n.parquet", table))
    assert source.read(np.array([0, 4]))["a"].tolist() == [1, 5]
    with pytest.raises(SampleError, match=r"^sample 3 cannot be read: .*n.parquet, row 3: its "
                       r"column 'l' contains a null$") as caught:  # fmt: skip
        source.read(np.array([4, 3, 5, 2]))
    assert caught.value.metadata["sample_id"] == "3"
    with pytest.raises(SampleError, match="row 5: its column 'a' is null"):
        source.read(np.array([5]))
    table = {"photo": [{"bytes": b"1"}, None, {"bytes": b"3"}], "label": [1, 2, 3]}
    images = opened(write(tmp_path / "i.parquet", table), ["photo.bytes", "label"])
    assert images.read(np.array([2, 0]))["photo.bytes"].tolist() == [b"3", b"1"]
    with pytest.raises(SampleError, match=r"row 1: its column 'photo.bytes' is null"):
        images.read(np.array([0, 1]))


def test_lists_of_a_shape(tmp_path: Path) -> None:
    file = write(tmp_path / "l.parquet", {"box": [[1, 2], [3, 4], [5]], "m": [[[1], [1, 2]]] * 3})
    source = opened(file, ["box"], shapes={"box": [2]})
    assert source.read(np.array([1, 0]))["box"].tolist() == [[3, 4], [1, 2]]
    with pytest.raises(SampleError, match=r"'box' is int64\[1\], not int64\[2\]"):
        source.read(np.array([0, 2]))
    with pytest.raises(SampleError, match="'m' has lists of different lengths"):
        opened(file, ["m"]).read(np.array([0]))
    with pytest.raises(
        SourceError, match=r"'box' is int64\[\?\], which does not fit \[2, 2\]; give"
    ):
        opened(file, shapes={"box": [2, 2]})


def test_columns_that_cannot_be_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    decimal = pa.array([1] * 3, pa.decimal128(5, 2))
    file = write(tmp_path / "d.parquet", {"price": decimal, "id": [1, 2, 3]})
    assert list(opened(file).columns) == ["id"]
    assert "skipped columns that cannot be served: price (decimal128(5, 2))" in caplog.text
    with pytest.raises(SourceError, match=r"'price' is decimal128.5, 2., which cannot be served; "
                       "convert or rename it, or choose from: id"):  # fmt: skip
        opened(file, ["price"])
    with pytest.raises(SourceError, match=r"d.parquet has no column 'x'; available: id$"):
        opened(file, ["id", "x"])
    only = write(tmp_path / "o.parquet", {"price": decimal})
    with pytest.raises(
        SourceError, match=r"no column that can be served; it has: price .decimal12"
    ):
        opened(only)


def test_files_of_other_types_are_refused(file: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "z.parquet", {"id": [1], "text": ["a"], "more": [1]})
    with pytest.raises(SourceError, match=r"z.parquet has int64\[\] for the column 'id', but .*rows"
                       r"\.parquet has int16\[\]; serve the files as two data sets"):  # fmt: skip
        opened([file, other], ["text", "id"])
    assert len(opened([file, other], ["text"])) == ROWS + 1
    with pytest.raises(SourceError, match=r"z.parquet has no field for the column 'photo.bytes'"):
        opened([file, other], ["photo.bytes"])
    times = [
        write(tmp_path / f"{unit}.parquet", {"t": pa.array([1], pa.timestamp(unit))})
        for unit in ("ms", "us")
    ]
    with pytest.raises(
        SourceError, match=r"us.parquet has int64\[\] timestamp\[us\] for the column"
    ):
        opened(times)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda content: content[:-1],
            "is truncated or not Parquet: it does not end with PAR1",
        ),
        (lambda content: content[: len(content) // 2], "is truncated or not Parquet"),
        (lambda _: b"", "is truncated or not Parquet"),
        (lambda _: b"PAR1", "footer cannot be read: it states"),
        (lambda content: b"PAR1" + content[-2000:], "row group 0 cannot be read: "),
        (
            lambda content: content[:-8] + b"\xff\xff\xff\x7fPAR1",
            "footer cannot be read: it states 2147483",
        ),
        (lambda content: content[:-60] + bytes(52) + content[-8:], "footer cannot be read: "),
        (lambda content: content[:-4] + b"PARE", "is encrypted; write it without encryption"),
    ],
)
def test_damaged_file_is_named(file: Path, change: Any, message: str) -> None:
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(SourceError, match=rf"rows\.parquet.*{message}"):
        opened(file, ["id"]).read(np.array([0]))


def test_damaged_page_is_no_bad_sample(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", {"x": [b"12345678"] * 4}, compression="none")
    content = file.read_bytes()
    file.write_bytes(content.replace(b"12345678", b"12345679", 1))
    with pytest.raises(SourceError, match=r"row group 0 cannot be read: .*CRC.*; put a good copy "
                       "in its place and restart") as caught:  # fmt: skip
        opened(file).read(np.array([0]))
    assert not isinstance(caught.value, SampleError)


def test_no_rows_and_no_files(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="the files have no rows; leave them out"):
        opened(write(tmp_path / "e.parquet", {"x": pa.array([], "int64")}))
    with pytest.raises(SourceError, match="no file matches"):
        opened(tmp_path / "no-*.parquet")
    findings = [*ParquetSource(parquet=str(tmp_path / "no.parquet")).check()]
    assert [path for path, _ in findings] == [("parquet",)]


def test_missing_pyarrow_names_the_extra(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'infeed\[formats\]'"):
        opened(file)


@pytest.mark.parametrize("seed", range(2))
def test_flipped_bytes_give_right_rows_or_a_named_error(tmp_path: Path, seed: int) -> None:
    """With page checksums, a changed byte is found, unless the identity has it: it is in the
    footer."""
    rng = random.Random(seed)
    table = {
        "text": [f"text {n}" * 5 for n in range(20)],
        "n": list(range(20)),
        "l": [[n] * (n % 3) for n in range(20)],
        "d": pa.array([f"{n % 3}" for n in range(20)]).dictionary_encode(),
    }
    file = write(tmp_path / "f.parquet", table, row_group_size=8, store_schema=bool(seed % 2))
    good, content = opened(file), file.read_bytes()
    indices = np.arange(20)
    expected = good.read(indices)
    for number in range(75):
        position = rng.randrange(len(content))
        flipped = bytes([content[position] ^ (1 << rng.randrange(8))])
        changed = tmp_path / f"{number}.parquet"
        changed.write_bytes(content[:position] + flipped + content[position + 1 :])
        try:
            source = opened(changed)
            read = source.read(indices)
        except InfeedError:
            continue
        finally:
            changed.unlink()
        if source.identity == good.identity:
            for name, values in expected.items():
                np.testing.assert_array_equal(read[name], values)


def write_labels(path: Path, *names: str) -> Path:
    features = {"label": {"_type": "ClassLabel", "names": [*names]}, "id": {"_type": "Value"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"label": [0, 1], "id": [3, 4]})
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


def test_names_of_classes_are_those_of_the_metadata(tmp_path: Path) -> None:
    one, two = (
        write_labels(tmp_path / "1", "cat", "dog"),
        write_labels(tmp_path / "2", "cat", "dog"),
    )
    assert opened([one, two]).classes == {"label": ("cat", "dog")}
    assert opened(one, ["id"]).classes == {}
    assert opened(write(tmp_path / "3"), ["id"]).classes == {}
    other = write_labels(tmp_path / "4", "dog", "cat")
    with pytest.raises(SourceError, match=r"4 has a column 'label' where 0 is 'dog', not 'cat' as"):
        opened([one, other])
