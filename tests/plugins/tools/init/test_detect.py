"""Starters for each kind of data: findings, suggestions and refusals."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.harness.datasets import jpeg
from tests.harness.packages import write_package
from tests.harness.starters import definitions, draft, names, text
from tests.harness.tfrecords import example, write_records

from infeed.shared.doors import Door
from infeed.shared.errors import SourceError, UserCodeError
from infeed_tools.init import drafter
from infeed_tools.init.detect import starter_for


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
    found = draft(data, "folders")
    assert found.samples == 12
    assert found.fields == {"image": "JPEG, height 30 to 41, width 40 to 51"}
    assert (found.label, found.classes) == ("class folder", ["cat", "dog"])


def test_flat_folder_of_grey_images_of_one_size(data: Path, tmp_path: Path) -> None:
    pipeline = definitions(data, "flat")["flat"]
    assert pipeline["source"] == {"images": "flat"}
    assert pipeline["transforms"][:2] == [
        {"decode_image": {"field": "image", "channels": 1}},
        {"resize": {"field": "image", "size": [32, 32]}},
    ]
    assert draft(data, "flat").label == "none"
    (tmp_path / "a.jpg").write_bytes((data / "flat" / "0.jpg").read_bytes())
    (tmp_path / "b.jpg").write_bytes(b"not an image")
    assert "1 of the 2 images read cannot be opened" in text(tmp_path, ".")


@pytest.mark.parametrize("path", ["csv/labels.csv", "csv/images"])
def test_csv_that_the_source_reads_is_used_as_it_is(data: Path, path: str) -> None:
    (pipeline,) = definitions(data, path).values()
    assert pipeline["source"] == {"images": "csv/images", "labels": "csv/labels.csv"}
    assert starter_for(str(data / path), data).files == {}


def test_csv_with_other_columns_is_converted(data: Path) -> None:
    starter = starter_for(str(data / "other-csv" / "table.csv"), data)
    (name, content), (removed, names) = starter.files.items()
    assert name == "pictures-labels.infeed.csv"
    assert content.splitlines()[:2] == ["file,label", "0.jpg,class 0"]
    assert len(content.splitlines()) == 11
    pipeline = definitions(data, "other-csv/table.csv")["pictures"]
    classes = ["class 0", "class 1", "class 2"]
    labels = {"table": name, "classes": classes}
    assert pipeline["source"] == {"images": "other-csv/pictures", "labels": labels}
    assert removed == "pictures-without-label.infeed.txt"
    assert len(names.splitlines()) == 2
    assert pipeline["remove"] == {"samples": removed, "then": "shrink"}
    assert "on_error" not in pipeline
    written = text(data, "other-csv/table.csv")
    assert "# rows of table.csv that name no image: 1\n" in written
    assert f"# pictures: left out: 2 images without a label: {removed}\n" in written
    found = draft(data, "other-csv/table.csv")
    assert found.label == "column class of table.csv"
    assert found.classes == classes


def test_parts_are_pipelines(data: Path) -> None:
    pipelines = definitions(data, "parts")
    assert list(pipelines) == ["parts-train", "parts-val"]
    assert pipelines["parts-val"]["source"] == {"images": "parts/val", "labels": "folders"}
    assert "random_flip_left_right" in names(pipelines["parts-train"])
    assert names(pipelines["parts-val"]) == ["decode_image", "resize", "normalize"]
    assert pipelines["parts-val"]["batch"] == {"size": 4, "remainder": "pad"}
    assert "shuffle" not in pipelines["parts-val"]


def test_lists_of_a_pack_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    write_records(tmp_path / "packed/a.tfrecord", [example({"label": [1]})])
    (tmp_path / "packed/a.origins.gz").write_bytes(gzip.compress(b"0\tb.jpg\t0\n"))
    assert list(definitions(tmp_path, "packed")) == ["a"]
    assert "not used" not in text(tmp_path, "packed")


@pytest.mark.parametrize("path", ["records", "records/train-*"])
def test_records(data: Path, path: str) -> None:
    pipelines = definitions(data, path)
    assert list(pipelines) == (["train", "val"] if path == "records" else ["train"])
    assert pipelines["train"]["source"] == {
        "tfrecord": "records/train-*-of-*" if path == "records" else path,
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
    found = draft(data, path)
    assert (found.samples, found.is_counted) == (16, False)
    assert found.fields["image/encoded"] == "bytes, JPEG, height 30, width 40"
    for kind in ("int64, 0 to 3", "bytes, text: cat, dog", "int64[3], 1 to 3 values, 0 to 2"):
        assert kind in found.fields.values()


def test_images_with_boxes_are_not_moved_alone(data: Path, tmp_path: Path) -> None:
    train = definitions(data, "records")["train"]
    assert names(train) == ["decode_image", "resize", "normalize"]
    image = np.arange(4 * 8 * 8 * 3).astype(np.uint8).reshape(4, 8, 8, 3)
    np.savez(tmp_path / "train.npz", image=image, gt_boxes=np.zeros((4, 2, 4)))
    assert names(definitions(tmp_path, "train.npz")["train"]) == ["normalize"]


def png(mode: str, number: int) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (200, 200), number).save(stream, "png")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("other", "values"),
    [
        ("annotation", [png("L", n) for n in range(4)]),
        ("label", [png("RGB", n) for n in range(4)]),
        ("conditioning_image", [png("RGB", n) for n in range(4)]),
        ("raw", [bytes([n, 1, 2]) for n in range(4)]),
        ("about", [b'{"at": [1, 2]}'] * 4),
        ("labels", [b"0 .5 .5 .1 .1\n1 .2 .2 .1 .1"] * 4),
        ("encoded", [b"1 3 10 5"] * 4),
        ("objects", [b"(1, 2) cat (3, 4) dog"] * 4),
    ],
)
def test_pictures_are_not_moved_apart(tmp_path: Path, other: str, values: list[bytes]) -> None:

    rows = [{"image": [jpeg(n, (200, 180))], other: [values[n]]} for n in range(4)]
    write_records(tmp_path / "train.tfrecord", [example(row) for row in rows])
    transforms = definitions(tmp_path, "train.tfrecord")["train"]["transforms"]
    assert [*map(next, map(iter, transforms))] == ["decode_image", "resize", "normalize"]
    assert {options["field"] for step in transforms for options in step.values()} == {"image"}
    notes = [*draft(tmp_path, "train.tfrecord").all_notes()]
    assert f"image gets no random crop or flip, because {other} may hold places in it; " in notes[0]
    if other in ("annotation", "label", "conditioning_image"):
        assert notes[1].startswith(f"{other}: pictures that may be masks get no ")


def test_pictures_of_which_none_is_clearly_the_image_are_kept(tmp_path: Path) -> None:

    rows = [{"a": [jpeg(n)], "b": [jpeg(n)], "depth": [png("L", n)]} for n in range(4)]
    write_records(tmp_path / "train.tfrecord", [example(row) for row in rows])
    assert "transforms" not in definitions(tmp_path, "train.tfrecord")["train"]
    (note, *_) = draft(tmp_path, "train.tfrecord").all_notes()
    assert note.startswith("a, b, depth: pictures that may be masks get no")


def test_an_array_of_few_values_is_kept_as_a_mask_is(tmp_path: Path) -> None:
    image = np.arange(4 * 8 * 8 * 3).astype(np.uint8).reshape(4, 8, 8, 3)
    np.savez(tmp_path / "train.npz", image=image, mask=np.eye(8, dtype=np.uint8)[[range(8)] * 4])
    transforms = definitions(tmp_path, "train.npz")["train"]["transforms"]
    assert transforms == [{"normalize": {"field": "image", "scale": 255.0}}]
    assert draft(tmp_path, "train.npz").fields["mask"] == "uint8[8, 8], 0 to 1"


def test_arrays(data: Path) -> None:
    pipeline = definitions(data, "arrays/digits.npz")["digits"]
    assert pipeline["source"] == {"arrays": "arrays/digits.npz"}
    assert names(pipeline) == ["random_flip_left_right", "normalize"]
    fields = draft(data, "arrays/digits.npz").fields
    assert fields == {"image": "uint8[8, 8, 3], 0 to 255", "label": "int64[], 0 to 9"}
    assert definitions(data, "arrays") == definitions(data, "arrays/digits.npz")


def test_npy_files(data: Path) -> None:
    pipeline = definitions(data, "npy")["npy"]
    assert pipeline["source"] == {"arrays": {"x": "npy/x.npy", "y": "npy/y.npy"}}
    assert "transforms" not in pipeline
    assert "transforms" not in definitions(data, "single.npy")["single"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing/here", "no file matches .*/nothing/here'; the nearest folder that exists is"),
        ("empty", r"no file matches .*/empty', which holds nothing"),
        ("notes.txt", "notes.txt holds an unknown kind of data; see"),
        ("one.jpg", "is one image; give its folder: "),
        ("lengths.npz", "the arrays differ in their first dimension: x: 3, y: 4; choose arrays of"),
        ("scalar.npz", r"the array 'y' of .* is a single value; it needs a first dimension"),
        ("gzip.tfrecord", "gzip.tfrecord is compressed with GZIP, .*; unpack it: gunzip"),
        ("gzip", "gzip is compressed with GZIP, .*; unpack it: gunzip"),
        ("zero.tfrecord", "zero.tfrecord: the file has no records; write it again"),
        ("zero", "zero is empty: it has no bytes; write it again"),
        ("raw.tfrecord", "its records are not tf.train.Examples with features; convert them"),
    ],
)
def test_what_cannot_be_served_is_explained(tmp_path: Path, path: str, message: str) -> None:

    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "one.jpg").write_bytes(b"")
    (tmp_path / "gzip.tfrecord").write_bytes(gzip.compress(b"records"))
    (tmp_path / "zero.tfrecord").write_bytes(b"")
    (tmp_path / "gzip").write_bytes(gzip.compress(b"records"))
    (tmp_path / "zero").write_bytes(b"")
    np.savez(tmp_path / "lengths.npz", x=np.arange(3), y=np.arange(4))
    np.savez(tmp_path / "scalar.npz", y=np.array(4))
    write_records(tmp_path / "raw.tfrecord", [b"no example"])
    with pytest.raises(SourceError, match=message):
        starter_for(str(tmp_path / path), tmp_path)


def test_a_starter_at_fault_names_its_package(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = (
        "from infeed_tools.init.drafter import Drafter\n\n"
        "def draft(data):\n    raise ValueError('my bug')\n\n"
        "def begins(head):\n    raise KeyError('magic')\n\n"
        "DRAFTER = Drafter(draft, endings=['.zarr'], begins=begins)\n"
    )
    entries = "[infeed.starters]\nzarr = zarr_starter:DRAFTER\nother = zarr_starter:draft\n"
    write_package(tmp_path, "infeed-zarr", entries, zarr_starter=code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(drafter, "_DOOR", Door("infeed.starters", "starter"))
    assert draft(data, "flat").samples
    assert "'other' of infeed-zarr 1.0 should be a Drafter, not <function draft" in caplog.text
    (tmp_path / "a.zarr").write_bytes(b"x")
    with pytest.raises(UserCodeError, match=r"'zarr' of infeed-zarr 1\.0 raised ValueError:"):
        starter_for(str(tmp_path / "a.zarr"), tmp_path)
    (tmp_path / "unknown").write_bytes(b"x")
    with pytest.raises(SourceError, match="unknown holds an unknown kind of data"):
        starter_for(str(tmp_path / "unknown"), tmp_path)
    assert "'zarr' of infeed-zarr 1.0: begins: KeyError: 'magic'" in caplog.text
