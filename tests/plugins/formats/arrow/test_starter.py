"""Tests of the drafts for Parquet, CSV and folders of Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.harness.datasets import jpeg
from tests.harness.saved import write_saved
from tests.harness.starters import definitions, draft, drafts, names, text
from tests.harness.tfrecords import example, write_records


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Rows of all kinds of columns; a function that writes them in row groups of 5."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    count = 24
    columns = {
        "photo": [{"bytes": jpeg(number), "path": None} for number in range(count)],
        "label": pyarrow.array(range(count), pyarrow.int32()),
        "name": [f"n{number}" for number in range(count)],
        "box": pyarrow.array([[0.5, number] for number in range(count)]),
        "tokens": [[1] * (number % 3 + 1) for number in range(count)],
        "when": pyarrow.array(range(count), pyarrow.date32()),
        "price": pyarrow.array([1] * count, pyarrow.decimal128(3)),
    }
    for shard in range(2):
        rows = pyarrow.table(columns).slice(12 * shard, 12)
        parquet.write_table(rows, tmp_path / f"train-{shard}-of-2.parquet", row_group_size=5)
    return columns


@pytest.mark.usefixtures("table")
def test_parquet(tmp_path: Path) -> None:
    pipeline = definitions(tmp_path, ".")["train"]
    assert pipeline["source"] == {
        "parquet": "train-*-of-*.parquet",
        "columns": ["photo.bytes", "label", "name", "box", "when"],
        "shapes": {"box": [2]},
    }
    found = draft(tmp_path, ".")
    assert found.fields["box"] == "float64[?], 0 to 23"
    assert names(pipeline)[0] == "decode_image"
    assert (found.samples, found.is_counted) == (24, True)
    for reason in ("photo.path: null", "price: decimal128(3, 0)", "tokens: its shape varies"):
        assert f"# train: left out: {reason}" in text(tmp_path, ".")


def test_parquet_of_many_bytes_is_shuffled_in_windows(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infeed_formats.arrow.starter._MAX_SHUFFLED_BYTES", 1)
    shuffle = definitions(tmp_path, ".")["train"]["shuffle"]
    assert shuffle == {"seed": 0, "mode": "window", "block": 5, "window": 20}


def test_data_set_that_hugging_face_saved(tmp_path: Path) -> None:
    rows = {"image": [{"bytes": jpeg(number), "path": None} for number in range(8)]}
    rows["label"] = [number % 2 for number in range(8)]
    features = {
        "image": {"_type": "Image"},
        "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    }
    for split in ("train", "test"):
        write_saved(tmp_path / "pets" / split, rows, features)
    (tmp_path / "pets" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    pipelines = definitions(tmp_path, "pets")
    assert [*pipelines] == ["pets-train", "pets-test"]
    assert pipelines["pets-train"]["source"] == {
        "huggingface": "pets/train",
    }
    assert names(pipelines["pets-test"]) == ["decode_image", "resize", "normalize"]
    assert draft(tmp_path, "pets").fields["label"] == "int64[], 0 to 1, classes: cat, dog"


def test_image_column_with_a_null_is_kept(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    images = [None if n == 3 else jpeg(n) for n in range(8)]
    rows = {"image": pyarrow.array(images, pyarrow.binary()), "gone": pyarrow.nulls(8, "int64")}
    parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    (draft,) = drafts(tmp_path).values()
    assert draft.source["columns"] == ["image"]
    assert draft.bad == "image has nulls"
    assert draft.notes == ["left out: gone: 8 of 8 rows are null"]
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


def test_split_without_labels_has_none(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    features = {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    for split, label in (("train", [-1, 0, 1]), ("test", [-1] * 3)):
        write_saved(tmp_path / "d" / split, {"x": [1, 2, 3], "label": label}, features)
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    train, test = drafts(tmp_path / "d").values()
    assert test.source["columns"] == ["x"]
    assert test.notes == ["left out: label: no label: -1 in all 3 rows read"]
    assert train.notes == ["label has no class, such as -1, in 1 of the rows read"]
    write_saved(tmp_path / "s", {"label": ["a", "b"]}, features)  # as pandas changes a column
    (text,) = drafts(tmp_path / "s").values()
    assert text.fields == {"label": "bytes[], text: a, b"}
    write_records(tmp_path / "r", [example({"x": [n], "label": [-1]}) for n in range(2)])
    (records,) = drafts(tmp_path / "r").values()
    assert records.notes == ["label is -1 in all samples read, which may mean no label"]


def test_csv_of_numbers_is_a_source(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text("width,kind\n1.5,a\n2,b\n")
    (draft,) = drafts(tmp_path / "t.csv").values()
    assert draft.source == {"csv": "t.csv"}
    assert draft.fields == {"width": "float64[], 1.5 to 2", "kind": "bytes[], text: a, b"}
