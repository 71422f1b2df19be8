"""Starters for images: labels of a CSV and of folders, and what is said of those left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.harness.datasets import jpeg

from infeed_server.starter.detect import starter_for
from infeed_server.starter.draft import Place, Starter

COLOURS = ["red", "green", "blue"]


@pytest.fixture(scope="module")
def picture() -> bytes:
    return jpeg(0)


def write_images(folder: Path, picture: bytes, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(picture)


def starter(folder: Path, csv: str | bytes = "", name: str = "labels.csv") -> Starter:
    if csv:
        (folder / name).write_bytes(csv if isinstance(csv, bytes) else csv.encode())
    return starter_for(str(folder), Place(folder.parent))


def text(starter: Starter) -> str:
    return starter.text("infeed init", "pipelines.yaml")


def table(header: str, *columns: list[object]) -> str:
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([header, *rows]) + "\n"


@pytest.fixture
def flat(tmp_path: Path, picture: bytes) -> Path:
    folder = tmp_path / "flat"
    write_images(folder, picture, *(f"{number}.jpg" for number in range(6)))
    return folder


NAMES: list[object] = [f"{number}.jpg" for number in range(6)]


def test_label_is_a_column_whose_values_repeat_and_not_the_id(flat: Path) -> None:
    ids: list[object] = list(range(6))
    made = starter(
        flat, table("id,image,part,breed", ids, NAMES, ["train"] * 6, [*COLOURS, *COLOURS])
    )
    (content,) = made.files.values()
    assert content.splitlines()[:4] == ["file,label", "0.jpg,2", "1.jpg,1", "2.jpg,0"]
    assert "# label is the column breed of labels.csv; not used: id, part" in text(made)
    assert "# 3 different labels in labels.csv: 0 blue, 1 green, 2 red" in text(made)


def test_classes_of_text_are_numbered_although_the_source_can_read_the_csv(flat: Path) -> None:
    made = starter(flat, table("file,label", NAMES, [*COLOURS, *COLOURS]))
    assert made.files["flat-labels.csv"].splitlines()[1] == "0.jpg,2"


def test_free_text_is_kept(flat: Path) -> None:
    made = starter(flat, table("file,label", NAMES, [f"caption {name}" for name in NAMES]))
    assert not made.files
    assert "labels: flat/labels.csv" in text(made)


def test_fractions_are_parsed(flat: Path) -> None:
    made = starter(flat, table("file,label", NAMES, [0.5, 1, 2, 3, 4, 5]))
    (pipeline,) = yaml.safe_load(text(made))["pipelines"].values()
    assert {"string_to_number": {"field": "label"}} in pipeline["transforms"]
    assert pipeline["source"]["labels"] == "flat/labels.csv"


def test_rows_that_are_left_out_have_their_reason(flat: Path) -> None:
    rows = "file,label\n0.jpg,1\n1.jpg,\n2.jpg,2\n3.jpg,1\n4.jpg,1\n5.jpg,2\n9.jpg,1\n0.jpg,2\n"
    made = starter(flat, rows)
    written = text(made)
    assert "# left out: 1 rows of labels.csv without an image" in written
    assert "# left out: 1 rows of labels.csv without a label" in written
    assert "another label than an earlier one of the image are left out, of 0.jpg" in written
    assert "on_error: substitute  # 1 images have no label" in written
    assert "0.jpg,1" in made.files["flat-labels.csv"]


@pytest.mark.parametrize(
    ("csv", "reason"),
    [
        (b"file,label\n0.jpg,r\xe9\n", "is not UTF-8 text"),
        (b"file,label\nother.jpg,1\nmore.jpg,2\n", "no column names images below this folder"),
    ],
)
def test_csv_in_the_folder_that_is_not_used_is_named_with_the_reason(
    flat: Path, csv: bytes, reason: str
) -> None:
    (line,) = [line for line in text(starter(flat, csv)).splitlines() if "is not used" in line]
    assert line.strip().startswith("# labels.csv is not used: ")
    assert line.endswith(reason)


def test_images_outside_of_class_folders_are_named(tmp_path: Path, picture: bytes) -> None:
    write_images(tmp_path / "pets", picture, "cat/0.jpg", "dog/0.jpg", "stray.jpg")
    written = text(starter(tmp_path / "pets"))
    assert "# no label by folder: 1 images are in none, such as stray.jpg; move them" in written


def test_parts_with_different_folders_have_one_numbering(tmp_path: Path, picture: bytes) -> None:
    write_images(
        tmp_path / "pets", picture, "train/ape/0.jpg", "train/cat/0.jpg", "train/dog/0.jpg",
        "val/ape/0.jpg", "val/dog/0.jpg",
    )  # fmt: skip
    made = starter(tmp_path / "pets")
    assert made.files["pets-train-labels.csv"].splitlines()[1:] == [
        "ape/0.jpg,0",
        "cat/0.jpg,1",
        "dog/0.jpg,2",
    ]
    assert made.files["pets-val-labels.csv"].splitlines()[1:] == ["ape/0.jpg,0", "dog/0.jpg,2"]
    assert "labels: pets-val-labels.csv" in text(made)


def test_text_labels_of_parts_are_not_numbered(tmp_path: Path, picture: bytes) -> None:
    for part, classes in (("train", ["a", "b", "a", "b"]), ("val", ["b", "b", "b", "b"])):
        names: list[object] = [f"{number}.jpg" for number in range(4)]
        write_images(tmp_path / "pets" / part, picture, *map(str, names))
        (tmp_path / "pets" / part / "l.csv").write_text(table("file,label", names, [*classes]))
    made = starter(tmp_path / "pets")
    assert not made.files
    assert "number the classes alike in all parts" in text(made)


def test_images_of_other_formats_are_counted(flat: Path) -> None:
    write_images(flat, b"", "a.webp", "b.WEBP", "c.bmp", "d.txt")
    written = text(starter(flat))
    assert "# left out: 1 .bmp, 2 .webp; convert them to JPEG or PNG" in written
