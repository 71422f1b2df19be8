"""Static checks of files: every mistake at once, each with line and remedy."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.harness.tfrecords import example, write_records

from infeed_server.pipeline.load import parse_yaml
from infeed_tools.check.definitions import file_problems, order_notes

GOOD = """
pipelines:
  photos:
    source: {images: photos, labels: labels.csv}
    transforms: [decode_image: {field: image}, map: functions_of_check:flip]
    batch: {size: 2}
  records:
    source:
      tfrecord: [data-*.tfrecord]
      features:
        image: bytes
        box: {type: float, shape: [4]}
        tokens: {type: int64, max_length: 8}
        absent: {type: int64, max_length: 8}
    batch: {size: 2}
  digits: {source: {arrays: digits.npz}, batch: {size: 2}}
  one: {source: {arrays: {x: x.npy}}, batch: {size: 2}}
  own: {source: {dataset: functions_of_check:numbers}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    (folder / "photos").mkdir()
    (folder / "empty").mkdir()
    jpeg = io.BytesIO()
    Image.new("RGB", (6, 5)).save(jpeg, "JPEG")
    (folder / "photos" / "a.jpg").write_bytes(jpeg.getvalue())
    (folder / "labels.csv").write_text("file,label\na.jpg,1\n")
    box = [0.5, 1.0, 2.0, 3.0]
    features = {"image": [jpeg.getvalue()], "label": [3], "box": box, "tokens": [1, 2]}
    write_records(folder / "data-0.tfrecord", [example(features)] * 3)
    write_records(folder / "raw.tfrecord", [b"no example"])
    (folder / "cut.tfrecord").write_bytes((folder / "raw.tfrecord").read_bytes()[:-5])
    np.savez(folder / "digits.npz", x=np.arange(4), y=np.arange(4))
    np.save(folder / "x.npy", np.arange(4))
    (folder / "functions_of_check.py").write_text(
        "import tensorflow\n\ndef flip(sample): ...\n\ndef numbers(): ...\n"
    )
    return folder


def problems(folder: Path, text: str) -> list[str]:
    file = folder / "p.yaml"
    file.write_text(text)
    prefix = f"{file}:"
    found = file_problems(parse_yaml(str(file)))
    return [str(problem).removeprefix(prefix).replace(f"{folder}/", "") for problem in found]


def test_good_file_has_no_problem(folder: Path) -> None:
    assert problems(folder, GOOD) == []


def test_all_mistakes_of_a_file_are_named_at_once(folder: Path) -> None:
    found = problems(
        folder,
        """
pipelines:
  photos:
    source: {images: photo, labels: label.csv}
    shufle: {seed: 1}
    transforms:
      - decode_image: {field: image}
      - reszie: {field: image, size: [4, 4]}
      - map: functions_of_chek:flip
    batch: {size: "4"}
    batch: {size: 4}
  records:
    source: {tfrecord: [data-*.tfrecord, more-*.tfrecord], features: {imag: bytes, label: bytes}}
    transforms:
      - normalize: {field: label}
    batch: {size: 4}
pipeline: {}
""",
    )
    starts = [
        "4: pipelines.photos.source.images: no folder 'photo'; the nearest folder that exists is",
        "4: pipelines.photos.source.labels: no file matches 'label.csv'; the nearest folder",
        "5: pipelines.photos.shufle: unknown key 'shufle' (did you mean 'shuffle'?); allowed: ",
        "8: pipelines.photos.transforms[1]: unknown transform 'reszie' (did you mean 'resize'?); ",
        "9: pipelines.photos.transforms[2].map.function: no module 'functions_of_chek' (did you ",
        "10: pipelines.photos.batch.size: should be a valid integer, not '4'",
        "11: pipelines.photos.batch: given twice, first on line 10",
        "13: pipelines.records.source.tfrecord[1]: no file matches 'more-*.tfrecord'; the nearest",
        "15: pipelines.records.transforms[0].normalize: at least one of scale, mean and std is ",
        "17: pipeline: unknown key 'pipeline' (did you mean 'pipelines'?); allowed: pipelines",
    ]
    assert len(found) == len(starts), "\n".join(found)
    for problem, start in zip(found, starts, strict=True):
        assert problem.startswith(start), problem


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("images: empty", "images: no image in 'empty': none of its files ends with .jpg"),
        ("images: labels.csv", "images: no folder 'labels.csv'"),
        ("arrays: photos", "arrays: 'photos' is a folder; name its files"),
        ("arrays: {x: x.npy, y: y.npy}", "arrays.y: no file matches 'y.npy'"),
        (
            "dataset: functions_of_check:number",
            "dataset: 'functions_of_check' has no 'number' (did you mean 'numbers'?); it has: ",
        ),
        ("{python: functions_of_chec:numbers}", "python: no module 'functions_of_chec' (did you"),
    ],
)
def test_missing_data_is_named(folder: Path, source: str, problem: str) -> None:
    source = source if source.startswith("{") else f"{{{source}}}"
    batch = "" if "dataset" in source else "batch: {size: 1}"
    found = problems(folder, f"pipelines:\n  p:\n    source: {source}\n    {batch}\n")
    assert len(found) == 1, found
    assert found[0].startswith(f"3: pipelines.p.source.{problem}"), found[0]


@pytest.mark.parametrize(
    "text",
    [
        "with open('x') as f: first = 1\n1 / 0\n",
        "from os import *\n",
        "def __getattr__(name): ...\n",
    ],
)
def test_names_that_a_module_may_have_are_no_problem(folder: Path, text: str) -> None:
    (folder / "other_functions.py").write_text(text)
    source = "source: {dataset: other_functions:first.method}"
    assert problems(folder, f"pipelines:\n  p:\n    {source}\n") == []


def test_remote_paths_are_not_looked_for(folder: Path) -> None:
    for source in (
        "{images: 'gs://bucket/x', labels: 'gs://bucket/l.csv'}",
        "{arrays: 'gs://bucket/x.npz'}",
        "{tfrecord: 'gs://bucket/*', features: {x: bytes}}",
    ):
        text = f"pipelines:\n  p:\n    source: {source}\n    batch: {{size: 1}}\n"
        assert problems(folder, text) == []


def test_samples_that_come_class_by_class_are_noted(tmp_path: Path) -> None:
    labels = ("folders", "{folders: [cat]}", "labels.csv")
    for options, noted in (("batch: 1", labels[:2]), ("batch: {size: 1, remainder: pad}", ())):
        text = "pipelines:\n" + "".join(
            f"  '{n}': {{source: {{images: photos, labels: {value}}}, {options}}}\n"
            for n, value in enumerate(labels)
        )
        (tmp_path / "p.yaml").write_text(text)
        notes = [*order_notes(parse_yaml(str(tmp_path / "p.yaml")))]
        assert [note.split(": ")[1] for note in notes] == [str(n) for n in range(len(noted))]
