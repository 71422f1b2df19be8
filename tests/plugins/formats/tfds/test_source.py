"""The `tfds` source: features, splits and their files, and descriptions that do not fit."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.tfds import (
    IMAGE,
    LABEL,
    TEXT,
    feature,
    features_dict,
    sequence,
    tensor,
    write_tfds,
)

from infeed import SourceError
from infeed_formats.tfds.source import TfdsReader, TfdsSource

Parse = Callable[..., dict[str, Any]]


def rows(first: int, count: int) -> list[dict[str, list[Any]]]:
    return [{"label": [n % 2], "text": [b"text %d" % n]} for n in range(first, first + count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A split of seven samples in two files, and one of two."""
    splits = {"train": [rows(0, 4), rows(4, 3)], "test": [rows(7, 2)]}
    write_tfds(tmp_path / "small" / "1.0.0", {"label": LABEL, "text": TEXT}, splits)
    return tmp_path / "small" / "1.0.0"


def open_source(folder: Path, split: str = "train", **options: Any) -> TfdsReader:
    return TfdsSource.model_validate({"tfds": str(folder), "split": split, **options}).open()


def change(folder: Path, name: str, edit: Callable[[Any], object]) -> None:
    content = json.loads((folder / name).read_text())
    edit(content)
    (folder / name).write_text(json.dumps(content))


def test_splits_have_their_records_in_order(folder: Path, parse: Parse) -> None:
    source = open_source(folder)
    assert len(source) == 7
    assert [parse(source, n)["text"] for n in (6, 0, 4)] == [b"text 6", b"text 0", b"text 4"]
    assert parse(source, 3)["label"] == 1
    assert source.classes["label"] == ("cat", "dog")
    assert source.provenance(5).file == str(folder / "small-train.tfrecord-00001-of-00002")
    test = open_source(folder, "test")
    assert [parse(test, n)["text"] for n in range(len(test))] == [b"text 7", b"text 8"]
    assert test.identity != source.identity
    assert open_source(folder, fields=["label"]).identity != source.identity
    assert parse(open_source(folder, fields=["label"]), 1) == {"label": 1}


def test_files_are_named_by_the_template(tmp_path: Path, parse: Parse) -> None:
    template = "{SPLIT}/data-{SHARD_INDEX}.rec"
    write_tfds(tmp_path, {"text": TEXT}, {"train": [rows(0, 2), rows(2, 1)]}, template)
    assert parse(open_source(tmp_path), 2)["text"] == b"text 2"
    change(
        tmp_path,
        "dataset_info.json",
        lambda i: i["splits"][0].update(filepathTemplate="x{SHARD_INDEX}"),
    )
    with pytest.raises(SourceError, match=r"cannot open .*x"):
        open_source(tmp_path)


CASES: dict[str, tuple[Any, dict[str, list[Any]], dict[str, Any]]] = {
    "int16": (tensor("int16"), {"x": [-3]}, {"x": np.int16(-3)}),
    "bool": (tensor("bool"), {"x": [1]}, {"x": np.bool_(True)}),
    "uint64": (tensor("uint64"), {"x": [-1]}, {"x": np.uint64(2**64 - 1)}),
    "float64": (tensor("float64"), {"x": [0.5]}, {"x": np.float64(0.5)}),
    "matrix": (tensor("uint8", 2, 2), {"x": [1, 2, 3, 4]}, {"x": np.uint8([[1, 2], [3, 4]])}),
    "strings": (tensor("string", 2), {"x": [b"a", b"b"]}, {"x": np.array([b"a", b"b"], object)}),
    "image": (IMAGE, {"x": [b"jpeg"]}, {"x": b"jpeg"}),
    "box": (
        feature("b.BBoxFeature", boundingBox={"dtype": "float32", "shape": {"dimensions": ["4"]}}),
        {"x": [0.0, 0.5, 1.0, 1.0]},
        {"x": np.float32([0, 0.5, 1, 1])},
    ),
    "translation": (
        feature("t.Translation", translation={"languages": ["en", "fr"]}),
        {"x/en": [b"yes"], "x/fr": [b"oui"]},
        {"x/en": b"yes", "x/fr": b"oui"},
    ),
    "nested": (
        features_dict({"y": features_dict({"z": tensor("int64")})}),
        {"x/y/z": [4]},
        {"x/y/z": np.int64(4)},
    ),
    "fixed sequence": (
        sequence(tensor("int32", 2), 2),
        {"x": [1, 2, 3, 4]},
        {"x": np.int32([[1, 2], [3, 4]])},
    ),
    "sequence": (
        sequence(tensor("int32")),
        {"x": [7, 8]},
        {"x": np.int32([7, 8, 0]), "x_length": np.int64(2)},
    ),
    "rows": (
        tensor("float32", -1, 2),
        {"x": [1.0, 2.0]},
        {"x": np.float32([[1, 2], [0, 0], [0, 0]]), "x_length": np.int64(1)},
    ),
    "no rows": (
        tensor("float32", -1, 2),
        {},
        {"x": np.zeros((3, 2), np.float32), "x_length": np.int64(0)},
    ),
    "sequence of features": (
        sequence(features_dict({"name": TEXT})),
        {"x/name": [b"a"]},
        {"x/name": np.array([b"a", b"", b""], object), "x/name_length": np.int64(1)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_feature_is_a_field(tmp_path: Path, parse: Parse, case: str) -> None:
    described, record, expected = CASES[case]
    write_tfds(tmp_path, {"x": described}, {"train": [[record]]})
    name = next(iter(expected))
    lengths = {name: 3} if len(expected) > 1 and f"{name}_length" in expected else {}
    found = parse(open_source(tmp_path, max_length=lengths), 0)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)
        assert isinstance(value, bytes) or found[key].dtype == value.dtype


UNSUPPORTED = {
    "video": (feature("video_feature.Video", video={}), "Video"),
    "dataset": (feature("d.Dataset", sequence={"feature": TEXT}), "Dataset"),
    "ragged": (sequence(sequence(tensor("int64"))), "a sequence in a sequence"),
    "zlib": (tensor("uint8", 2, encoding="zlib"), "encoding zlib"),
    "float image": (feature("i.Image", image={"dtype": "float32"}), "an image of floating-point"),
    "two sizes": (tensor("int64", -1, -1), r"shape \[-1, -1\]"),
    "complex": (tensor("complex64"), "data type complex64"),
    "varying": (sequence(tensor("int64")), r"its length varies; give max_length: {x: ...}"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_feature_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    described, reason = UNSUPPORTED[case]
    record = {"x": [1], "text": [b"a"]}
    write_tfds(tmp_path, {"x": described, "text": TEXT}, {"train": [[record]]})
    with caplog.at_level(logging.WARNING):
        open_source(tmp_path)
    assert "skipped features: x (" in caplog.text
    with pytest.raises(SourceError, match=f"no feature 'x' .*{reason}.*available: text"):
        open_source(tmp_path, fields=["x"])
    write_tfds(tmp_path, {"x": described}, {"train": [[record]]})
    with pytest.raises(SourceError, match=f"has no feature that can be served: x .*{reason}"):
        open_source(tmp_path)


def test_wrong_split_is_named_with_those_available(folder: Path) -> None:
    with pytest.raises(SourceError, match="no split 'valid'; available: test, train"):
        open_source(folder, "valid")
    ((path, problem),) = TfdsSource(tfds=str(folder), split="train[:80%]").check()
    assert path == ("split",)
    assert problem.endswith("available: test, train")


def test_folder_without_a_description_is_found_by_a_check(folder: Path) -> None:
    ((path, problem),) = TfdsSource(tfds=str(folder.parent), split="train").check()
    assert path == ("tfds",)
    assert "dataset_info.json" in problem


@pytest.mark.parametrize(
    ("name", "edit", "problem"),
    [
        (
            "dataset_info.json",
            lambda i: i["splits"][0].update(shardLengths=["4", "2"]),
            "00001-of-00002 has 3 records, but 2 in dataset_info.json",
        ),
        (
            "dataset_info.json",
            lambda i: i["splits"][0].update(shardLengths=[]),
            "the split 'train' has no record",
        ),
        (
            "dataset_info.json",
            lambda i: i.update(fileFormat="array_record"),
            "format 'array_record', .*tfds convert_format",
        ),
        (
            "dataset_info.json",
            lambda i: i["splits"][0].update(filepathTemplate="../{SHARD_INDEX}"),
            "is outside the folder",
        ),
        (
            "dataset_info.json",
            lambda i: i["splits"][0].update(filepathTemplate="small-train.tfrecord-00000-of-00002"),
            "lists the file 'small-train.* twice",
        ),
        ("dataset_info.json", lambda i: i.pop("splits"), "splits: Field required"),
        ("features.json", lambda f: f.pop("featuresDict"), "or an old version; write it again"),
        (
            "features.json",
            lambda f: f.update(featuresDict={"features": 3}),
            "featuresDict.features",
        ),
    ],
)
def test_wrong_description_is_refused(
    folder: Path, name: str, edit: Callable[[Any], object], problem: str
) -> None:
    change(folder, name, edit)
    with pytest.raises(SourceError, match=problem):
        open_source(folder)


@pytest.mark.parametrize("name", ["features.json", "dataset_info.json"])
def test_damaged_description_gives_no_other_error(tmp_path: Path, parse: Parse, name: str) -> None:
    write_tfds(tmp_path, {"label": LABEL}, {"train": [rows(0, 1)]})
    content = (tmp_path / name).read_bytes()
    places = range(0, len(content), 5)
    damaged = [content[:at] for at in places]
    damaged += [content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :] for at in places]
    refused = 0
    for changed in damaged:
        (tmp_path / name).write_bytes(changed)
        try:
            source = open_source(tmp_path)
        except SourceError:
            refused += 1
            continue
        if source.columns and "label" in source.records.features:
            assert parse(source, 0)["label"] == 0
    assert refused > len(places) // 2
