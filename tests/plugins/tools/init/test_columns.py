"""Formats whose data is easily split, left out or mistaken: right, noted, or a question."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.harness.starters import drafts
from tests.harness.tfrecords import example, write_records

from infeed.shared.errors import SourceError
from infeed_tools.init.listing import data_sets, role


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
    assert note.startswith("y is an array of one number: in programs, use its ravel()")


def test_arrays_that_cannot_be_served_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3), when=np.zeros(3, "datetime64[s]"))
    with pytest.raises(SourceError, match=r"'when' of .* unsupported data type datetime64.*conv"):
        drafts(tmp_path / "a.npz")


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
