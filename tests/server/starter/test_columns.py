"""Formats whose data was split, left out or taken for another one: right, or said, or asked."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.datasets import jpeg
from tests.harness.saved import write_saved
from tests.harness.tfrecords import example, write_records

from infeed.shared.errors import InfeedError, SourceError
from infeed_server.starter.detect import starter_for
from infeed_server.starter.draft import Draft
from infeed_server.starter.listing import data_sets, role


def write_tar(path: Path, members: Sequence[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def drafts(path: Path, **options: Any) -> dict[str, Draft]:
    return starter_for(str(path), path.parent, **options).drafts


@pytest.mark.parametrize(
    "names",
    [
        ("train-00000-of-00002-ab12cd34ef.parquet", "train-00001-of-00002-0123456789.parquet"),
        (
            "part-00000-1b2c3d4e-4d2a-4b4b-8c8c-0123456789ab-c000.snappy.parquet",
            "part-00001-0b2c3d4e-4d2a-4b4b-8c8c-0123456789ab-c001.snappy.parquet",
        ),
        ("3f2a9c_000000_000000.parquet", "3f2a9c_000001_000000.parquet"),
        ("ld_train00-1338.tfrec", "ld_train01-12.tfrec"),
        ("00000000.tar", "00000001.tar"),
        ("label=cat/0.parquet", "label=dog/0.parquet"),
    ],
    ids=["Hugging Face", "Spark", "Ray", "Kaggle", "DataComp", "hive"],
)
def test_names_of_shards_are_one_data_set(names: tuple[str, ...]) -> None:
    files = [f"/data/{name}" for name in names]
    found = data_sets([*files, "/data/other.parquet"], Path("/data"), "", apart=False)
    assert [[*data.files] for data in found if len(data.files) > 1] == [files]


def test_pattern_that_is_given_is_one_data_set(tmp_path: Path) -> None:
    for name in ("ab", "cd", "ef"):
        write_records(tmp_path / f"{name}.tfrecord", [example({"x": [1]})])
    assert len(drafts(tmp_path)) == 3
    (draft,) = drafts(tmp_path / "*.tfrecord").values()
    assert draft.source["tfrecord"] == "*.tfrecord"


def test_shards_of_two_exports_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"t-0000{n}-of-0000{total}" for n, total in ((0, 2), (1, 2), (0, 4), (1, 4), (3, 4))]
    for name in names:
        write_records(tmp_path / name, [example({"x": [1]})])
    with pytest.raises(SourceError, match=r"name one export: .*t-\*-of-00002 or .*-of-00004"):
        drafts(tmp_path)
    (draft,) = drafts(tmp_path / "t-*-of-00004").values()
    assert draft.source["tfrecord"] == "t-*-of-00004"
    assert "3 of 4 shards are there; missing: 2" in caplog.text
    drafts(tmp_path / "t-00001-of-00002")
    assert "1 of 2 shards are there; missing: 0" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("index.json", {"wids_version": 1, "shardlist": []}, "webdataset"),
        ("dataset_info.json", {"mine": {"file_name": "a.json"}}, "webdataset"),
        ("a.idx", "0 1234\n", "webdataset"),
    ],
)
def test_file_of_another_program_describes_nothing(
    tmp_path: Path, name: str, content: Any, kind: str
) -> None:
    write_tar(tmp_path / "a.tar", [("0.cls", b"1"), ("1.cls", b"2")])
    (tmp_path / name).write_text(json.dumps(content))
    for options in ({}, {"source": kind}):
        starter = starter_for(str(tmp_path), tmp_path, **options)
        (draft,) = starter.drafts.values()
        assert kind in draft.source
        assert starter.about == [f"not used: 1 {Path(name).suffix}: {name}"]


def test_words_in_cls_are_served_as_bytes(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0.cls", b"cat"), ("1.cls", b"dog")])
    (draft,) = drafts(tmp_path).values()
    assert draft.source["fields"] == {"label": {"cls": "bytes"}}
    assert draft.fields["label"] == "bytes, text: cat, dog"


def test_members_that_are_no_neighbours_are_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0.txt", b"a"), ("1.txt", b"b"), ("0.cls", b"1")])
    with pytest.raises(InfeedError, match="not neighbours"):
        drafts(tmp_path)


def test_arrays_of_keras_are_a_pipeline_for_each_part(tmp_path: Path) -> None:
    x, y = np.zeros((4, 2), np.float32), np.arange(4)
    np.savez(tmp_path / "m.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    found = drafts(tmp_path / "m.npz")
    assert {name: draft.source["fields"] for name, draft in found.items()} == {
        "m-train": {"x": "x_train", "y": "y_train"},
        "m-test": {"x": "x_test", "y": "y_test"},
    }
    assert [draft.is_for_training for draft in found.values()] == [True, False]


def test_labels_in_arrays_of_one_are_said_and_have_no_places(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 4, 4, 3), np.uint8)
    np.savez(tmp_path / "cifar.npz", x=pixels, y=np.arange(8).reshape(8, 1))
    (draft,) = drafts(tmp_path / "cifar.npz").values()
    assert "random_flip_left_right" in draft.transforms[0]
    (note,) = draft.notes
    assert note.startswith("y is an array of one number: in programs, take its ravel()")


def test_arrays_that_cannot_be_served_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3), when=np.zeros(3, "datetime64[s]"))
    with pytest.raises(SourceError, match=r"'when' of .* unsupported data type datetime64.*conv"):
        drafts(tmp_path / "a.npz")


def test_image_column_with_a_null_is_kept(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    images = [None if n == 3 else jpeg(n) for n in range(8)]
    rows = {"image": pyarrow.array(images, pyarrow.binary()), "gone": pyarrow.nulls(8, "int64")}
    parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    (draft,) = drafts(tmp_path).values()
    assert draft.source["columns"] == ["image"]
    assert draft.bad == "image has nulls"
    assert draft.notes == ["left out: gone: 8 of 8 rows have a null"]
    assert "decode_image" in draft.transforms[0]


def write_rows(tmp_path: Path, columns: dict[str, Any]) -> Path:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", row_group_size=50)
    return tmp_path


@pytest.mark.parametrize("kind", ["parquet", "csv", "huggingface"])
def test_null_that_is_not_looked_at_is_found(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    label = [None if n == 50 else n % 2 for n in range(200)]
    if kind == "parquet":
        write_rows(tmp_path, {"x": range(200), "label": label})
    elif kind == "csv":
        cells = "".join(f"{n},{'' if x is None else x}\n" for n, x in enumerate(label))
        (tmp_path / "t.csv").write_text(f"x,label\n{cells}")
    else:
        write_saved(tmp_path / "t", {"x": [*range(200)], "label": label}, {})
    (draft,) = drafts(tmp_path, source=kind).values()
    assert draft.definition()["on_error"] == "substitute"
    assert draft.bad == "label has nulls"


def test_struct_that_is_null_in_a_later_row_group_is_found(tmp_path: Path) -> None:
    image = [None if n == 60 else {"bytes": jpeg(n), "path": "a"} for n in range(100)]
    (draft,) = drafts(write_rows(tmp_path, {"image": image})).values()
    assert draft.bad == "image.bytes has nulls"


def test_names_of_pictures_that_are_null_make_no_sample_bad(tmp_path: Path) -> None:
    image = [{"bytes": jpeg(n), "path": None if n == 60 else "a"} for n in range(100)]
    (draft,) = drafts(write_rows(tmp_path, {"image": image})).values()
    assert draft.source["columns"] == ["image.bytes"]
    assert not draft.bad
    assert draft.notes[0] == "left out: image.path: it has nulls, and only tells of image.bytes"


def test_split_without_labels_has_none(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    features = {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    for split, label in (("train", [-1, 0, 1]), ("test", [-1] * 3)):
        write_saved(tmp_path / "d" / split, {"x": [1, 2, 3], "label": label}, features)
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    train, test = drafts(tmp_path / "d").values()
    assert test.source["columns"] == ["x"]
    assert test.notes == ["left out: label: no label: -1 in all of 3 rows looked at"]
    assert train.notes == ["label has no class, such as -1, in 1 rows looked at"]
    write_saved(tmp_path / "s", {"label": ["a", "b"]}, features)  # as pandas changes a column
    (text,) = drafts(tmp_path / "s").values()
    assert text.fields == {"label": "bytes[], text: a, b"}
    write_records(tmp_path / "r", [example({"x": [n], "label": [-1]}) for n in range(2)])
    (records,) = drafts(tmp_path / "r").values()
    assert records.notes == ["label is -1 in all that was looked at, which may be no label"]


def test_csv_of_numbers_is_a_source(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text("width,kind\n1.5,a\n2,b\n")
    (draft,) = drafts(tmp_path / "t.csv").values()
    assert draft.source == {"csv": "t.csv"}
    assert draft.fields == {"width": "float64[], 1.5 to 2", "kind": "bytes[], text: a, b"}


def test_folders_of_partitions_are_a_column(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for name in ("cat", "dog"):
        (tmp_path / f"label={name}").mkdir()
        rows = pyarrow.table({"x": [1, 2]})
        parquet.write_table(rows, tmp_path / f"label={name}" / "0.parquet")
    (draft,) = drafts(tmp_path).values()
    assert draft.source["parquet"] == f"{tmp_path.name}/label=*/*.parquet"
    assert [*draft.fields] == ["x", "label"]


def test_split_without_rows_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for split, rows in (("train", [1, 2]), ("test", [])):
        write_saved(tmp_path / "d" / split, {"x": rows}, {})
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    (draft,) = drafts(tmp_path / "d").values()
    assert draft.name == "d-train"
    assert draft.notes[0].startswith("a split is left out: ")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("Testing", "test"),
        ("seg_test1", "test"),
        ("train2017", "train"),
        ("validation", "val"),
        ("valley", ""),
        ("device", ""),
        ("Dev", "dev"),
        ("x_train", "train"),
        ("trainval", "train"),
    ],
)
def test_part_that_a_name_tells(name: str, part: str) -> None:
    assert role(name) == part
