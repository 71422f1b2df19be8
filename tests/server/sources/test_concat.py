"""Tests of `sources/concat.py`: several sources read as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.tfrecords import example, write_records

from infeed.shared.errors import ConfigError, SampleError, SourceError
from infeed_server.pipeline.load import parse
from infeed_server.sources.base import Source
from infeed_server.sources.concat import ConcatSource


def open_all(*sources: Any) -> Source:
    first, *added = sources
    return parse({"source": first, "add": added, "batch": 1}).open()


def write_numbers(path: Path, values: range) -> dict[str, Any]:
    write_records(path, (example({"x": [number]}) for number in values))
    return {"tfrecord": str(path), "features": {"x": "int64"}}


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Folders of images of the classes cat and dog, and in `other` ape and cat."""
    for number, name in enumerate(["one/cat", "one/dog", "two/cat", "other/ape", "other/cat"]):
        (tmp_path / name).mkdir(parents=True)
        image = tf.io.encode_png(np.full((2, 2, 3), number, np.uint8)).numpy()
        (tmp_path / name / "a.png").write_bytes(image)
    return tmp_path


def test_samples_are_numbered_and_read_in_any_order(tmp_path: Path) -> None:
    source = open_all(
        *(write_numbers(tmp_path / f"{n}.tfrecord", range(n * 5, n * 5 + 5)) for n in range(3))
    )
    assert len(source) == 15
    parsed = [
        int(
            source.parse(
                {name: tf.constant(rows[0]) for name, rows in source.read(np.array([i])).items()}
            )["x"]
        )
        for i in range(15)
    ]
    assert parsed == [*range(15)]
    order = np.array([14, 0, 7, 7, 3, 12, 5])
    together = source.read(order)
    for name, rows in together.items():
        assert rows.tolist() == [source.read(np.array([i]))[name][0] for i in order]
    assert source.provenance(4).file.endswith("0.tfrecord")
    assert source.provenance(5).file.endswith("1.tfrecord")
    assert source.provenance(5).offset == source.provenance(0).offset
    assert source.places.stamp


def test_parts_need_one_exif() -> None:
    parts: list[Any] = [open_all({"arrays": {"x": np.arange(2)}}) for _ in range(3)]
    parts[1].exif, parts[2].exif = "unclear", "ignore"
    assert ConcatSource(parts, "abc").exif == "ignore"
    parts[0].exif = "apply"
    with pytest.raises(ConfigError, match="c has labels for exif: ignore, not apply as in a; make"):
        ConcatSource(parts, "abc")


def test_identity_has_the_parts_in_their_order(tmp_path: Path) -> None:
    arrays = [{"arrays": {"x": np.arange(4) + n}} for n in (0, 1, 0)]
    one = open_all(arrays[0], arrays[1]).identity
    assert one == open_all(arrays[2], arrays[1]).identity
    assert one != open_all(arrays[1], arrays[0]).identity
    assert one != open_all(arrays[0]).identity


@pytest.mark.parametrize(
    ("x", "problem"),
    [
        ({"y": np.arange(3)}, "'x' missing, which is int64"),
        ({"x": np.arange(3, dtype=np.int32)}, "'x' int32[], which is int64[]"),
        ({"x": np.zeros((3, 2), np.int64)}, "'x' int64[2], which is int64[]"),
        ({"x": np.arange(3), "y": np.arange(3)}, "'y' int64[], which is missing"),
    ],
    ids=["name", "type", "shape", "more"],
)
def test_another_column_is_named_with_both_sources(tmp_path: Path, x: Any, problem: str) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    np.savez(tmp_path / "b.npz", **x)
    with pytest.raises(ConfigError) as raised:
        open_all({"arrays": str(tmp_path / "a.npz")}, {"arrays": str(tmp_path / "b.npz")})
    message = raised.value.message
    assert message.startswith("add[0]: arrays: ")
    assert problem in message
    assert "a.npz" in message
    assert "b.npz" in message


def test_records_must_have_the_same_features(tmp_path: Path) -> None:
    one, other = (write_numbers(tmp_path / f"{n}.tfrecord", range(3)) for n in range(2))
    with pytest.raises(ConfigError, match="other fields"):
        open_all(one, {**other, "features": {"x": {"type": "int64", "shape": [1]}}})


def test_labels_must_number_the_same_classes(folders: Path) -> None:
    one, two, other = (
        {"images": str(folders / name), "labels": "folders"} for name in ("one", "two", "other")
    )
    assert len(open_all(one, two)) == 3
    with pytest.raises(
        ConfigError, match=r"has the column 'label' where 0 is 'ape', not 'cat' as in images: .*one"
    ):
        open_all(one, other)


def test_a_bad_sample_has_its_number_of_the_whole(tmp_path: Path) -> None:
    definitions = []
    for name, rows in (("one", "a.png,0\nb.png,1\n"), ("two", "b.png,1\n")):
        (tmp_path / name).mkdir()
        for file in ("a.png", "b.png"):
            (tmp_path / name / file).write_bytes(b"")
        (tmp_path / f"{name}.csv").write_text(f"file,label\n{rows}")
        labels = str(tmp_path / f"{name}.csv")
        definitions.append({"images": str(tmp_path / name), "labels": labels})
    source = open_all(*definitions)
    for _ in range(2):
        with pytest.raises(SampleError, match=r"^sample 2 has no label: .*two/a\.png") as raised:
            source.read(np.array([0, 3, 2]))
        assert raised.value.metadata["sample_id"] == "2"


def test_an_added_source_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^add\[0\]: no file matches"):
        open_all({"arrays": {"x": np.arange(3)}}, {"arrays": str(tmp_path / "none.npz")})
