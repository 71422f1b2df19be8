"""Starters for each kind of data: what they find and suggest, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from infeed.shared.errors import SourceError
from infeed_server.starter.detect import drafts_for
from infeed_server.starter.draft import Draft, file_text


def drafts(data: Path, path: str) -> list[Draft]:
    return drafts_for(str(data / path), data)


def text(data: Path, path: str) -> str:
    return file_text(drafts(data, path), "infeed init", "pipelines.yaml")


def definitions(data: Path, path: str) -> dict[str, Any]:
    value = yaml.safe_load(text(data, path))
    assert isinstance(value, dict)
    return dict(value["pipelines"])


def names(pipeline: dict[str, Any]) -> list[str]:
    return [next(iter(step)) for step in pipeline["transforms"]]


def test_class_folders(data: Path) -> None:
    assert definitions(data, "folders") == {
        "folders": {
            "source": {"images": "folders", "labels": "folders"},
            "shuffle": {"seed": 0},
            "transforms": [
                {"decode_image": {"field": "image", "channels": 3}},
                {"random_resized_crop": {"field": "image", "size": [32, 32]}},
                {"random_flip_left_right": {"field": "image"}},
                {"normalize": {"field": "image", "scale": 255.0}},
            ],
            "batch": {"size": 8},
        }
    }
    written = text(data, "folders")
    assert "# 12 images; of 12 looked at: JPEG, height 30 to 41 (median 35.5), width " in written
    assert "# label is the class folder: 2 classes: 0 cat, 1 dog" in written


def test_flat_folder_of_grey_images_of_one_size(data: Path) -> None:
    pipeline = definitions(data, "flat")["flat"]
    assert pipeline["source"] == {"images": "flat"}
    assert pipeline["transforms"][:2] == [
        {"decode_image": {"field": "image", "channels": 1}},
        {"resize": {"field": "image", "size": [32, 32]}},
    ]
    assert "# labels: labels.csv, with the columns file,label" in text(data, "flat")


def test_csv_that_the_source_reads_is_used_as_it_is(data: Path) -> None:
    (pipeline,) = definitions(data, "csv/images").values()
    assert pipeline["source"] == {"images": "csv/images", "labels": "csv/labels.csv"}
    assert drafts(data, "csv/images")[0].files == {}


def test_parts_are_pipelines(data: Path) -> None:
    pipelines = definitions(data, "parts")
    assert list(pipelines) == ["parts-train", "parts-val"]
    assert pipelines["parts-val"]["source"] == {"images": "parts/val", "labels": "folders"}
    assert "random_flip_left_right" in names(pipelines["parts-train"])
    assert names(pipelines["parts-val"]) == ["decode_image", "resize", "normalize"]
    assert pipelines["parts-val"]["batch"] == {"size": 4, "remainder": "pad"}
    assert "shuffle" not in pipelines["parts-val"]


@pytest.mark.parametrize("path", ["records", "records/train-*"])
def test_records(data: Path, path: str) -> None:
    pipelines = definitions(data, path)
    assert list(pipelines) == (["train", "val"] if path == "records" else ["train"])
    assert pipelines["train"]["source"] == {
        "tfrecord": "records/train-*-of-00002",
        "features": {
            "box": {"type": "float", "shape": [4]},
            "image/encoded": "bytes",
            "label": "int64",
            "name": "bytes",
            "tokens": {"type": "int64", "max_length": 8},
        },
    }
    assert pipelines["train"]["transforms"][0] == {
        "decode_image": {"field": "image/encoded", "channels": 3}
    }
    assert pipelines["train"]["batch"] == {"size": 16}
    written = text(data, path)
    assert "# 2 files; features of 16 records" in written
    assert "image/encoded: bytes  # an image: JPEG, height 30, width 40" in written
    assert "max_length: 8}  # 16 of 16 have it, with up to 3 values" in written


def test_images_with_boxes_are_not_moved_alone(data: Path) -> None:
    train = definitions(data, "records")["train"]
    assert names(train) == ["decode_image", "resize", "normalize"]
    assert "# no crop or flip, which would not move 'box'" in text(data, "records")


def test_shards_named_by_numbers_have_a_glob(tmp_path: Path) -> None:
    from tests.harness.tfrecords import example, write_records

    for name in ("0", "10", "extra"):
        write_records(tmp_path / f"{name}.tfrecord", [example({"x": [1]})])
    sources = [pipeline["source"]["tfrecord"] for pipeline in definitions(tmp_path, ".").values()]
    assert sources == ["[0-9]*.tfrecord", "extra.tfrecord"]


def test_arrays(data: Path) -> None:
    pipeline = definitions(data, "arrays/digits.npz")["digits"]
    assert pipeline["source"] == {"arrays": "arrays/digits.npz"}
    assert names(pipeline) == ["normalize"]
    assert "# image: uint8[20, 8, 8, 3]" in text(data, "arrays/digits.npz")
    assert definitions(data, "arrays") == definitions(data, "arrays/digits.npz")


def test_npy_files(data: Path) -> None:
    pipeline = definitions(data, "npy")["npy"]
    assert pipeline["source"] == {"arrays": {"x": "npy/x.npy", "y": "npy/y.npy"}}
    assert pipeline["transforms"] == [{"cast": {"field": "x", "dtype": "float32"}}]
    assert "transforms" not in definitions(data, "single.npy")["single"]


def test_pipelines_of_one_name_are_numbered(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "x.npz", x=np.arange(3))
    assert list(definitions(tmp_path, ".")) == ["x", "x-2"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing/here", "no file at .*/nothing/here'; the nearest folder that exists is"),
        ("empty", "no file at "),
        ("notes.txt", "unknown kind of data: notes.txt; known: folders of .jpg, "),
        ("table/t.csv", r"with a CSV of labels as --labels, .* for a CSV of numbers: np\.savez"),
        ("lengths.npz", r"must count the samples, as many in all: x: \[3\], y: \[4\]; save"),
        ("scalar.npz", r"as many in all: x: \[3\], y: \[\]; save"),
        ("raw.tfrecord", "its records are not tf.train.Examples with features; convert them"),
    ],
)
def test_what_cannot_be_served_is_explained(tmp_path: Path, path: str, message: str) -> None:
    from tests.harness.tfrecords import write_records

    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "t.csv").write_text("a,b\n1,2\n3,4\n")
    np.savez(tmp_path / "lengths.npz", x=np.arange(3), y=np.arange(4))
    np.savez(tmp_path / "scalar.npz", x=np.arange(3), y=np.array(4))
    write_records(tmp_path / "raw.tfrecord", [b"no example"])
    with pytest.raises(SourceError, match=message):
        drafts(tmp_path, path)


def test_parquet_has_a_module_that_reads_its_shards(tmp_path: Path) -> None:
    for shard in range(2):
        (tmp_path / f"train-{shard}-of-2.parquet").write_bytes(b"PAR1")
    (draft,) = drafts(tmp_path, ".")
    pipeline = definitions(tmp_path, ".")["train"]
    assert pipeline["source"] == {"python": "rows_of_train_infeed:rows", "processes": 2}
    code = draft.files["rows_of_train_infeed.py"]
    assert "ParquetRows([FOLDER / 'train-*-of-2.parquet'])" in code
