"""Starters for images: labels of a CSV and of folders, and what is said where none is clear."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image
from tests.harness.datasets import jpeg

from infeed.shared.errors import SourceError
from infeed_server.starter.detect import drafts_for
from infeed_server.starter.draft import Draft, file_text
from infeed_server.starter.labels import UnclearLabelsError

PICTURE = jpeg(0)
NAMES = [f"{number}.jpg" for number in range(6)]
SIZES = [100, 100, 200, 200, 300, 300]
COLOURS = ["red", "green", "blue", "red", "green", "blue"]
WRITTEN = "flat-labels.infeed.csv"


def write_images(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(PICTURE)
    return folder


def table(header: str, *columns: Iterable[object]) -> str:
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([header, *rows]) + "\n"


def drafts(folder: Path, csv: str = "", labels: str | None = None) -> list[Draft]:
    if csv:
        (folder / "labels.csv").write_text(csv)
    return drafts_for(str(folder), folder.parent, labels)


def text(drafts: list[Draft]) -> str:
    return file_text(drafts, "infeed init", "pipelines.yaml")


def options(folder: Path, option: str | None = None) -> list[str]:
    """Returns the values of `--labels` among which one must be chosen."""
    with pytest.raises(UnclearLabelsError, match="it is not clear which column is the label") as e:
        drafts(folder, labels=option)
    return [value.rpartition("/")[2] for value, _ in e.value.options]


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return write_images(tmp_path / "flat", *NAMES)


@pytest.mark.parametrize(
    ("csv", "expected"),
    [
        (table("file,width,height", NAMES, SIZES, SIZES), ["width", "height"]),
        (table("file,breed", NAMES, COLOURS), ["breed"]),
        (table("file,label", NAMES[:5], SIZES[:5]), ["label"]),
        (table("file;label", [f"{name};1" for name in NAMES]), ["label"]),
        (table("file,label", [*NAMES, "9.jpg"], [*SIZES, 1]), ["label"]),
    ],
    ids=["sizes", "another name", "an image without", "semicolons", "a row without"],
)
def test_column_that_is_not_clearly_the_label_is_not_guessed(
    flat: Path, csv: str, expected: list[str]
) -> None:
    (flat / "table.csv").write_text(csv)
    assert options(flat) == [*(f"table.csv:{column}" for column in expected), "none"]
    (made,) = drafts(flat, labels=f"{flat}/table.csv:{expected[0]}")
    assert f"label is the column {expected[0]} of table.csv" in made.label


def test_label_is_not_guessed_between_files(flat: Path) -> None:
    (flat / "a.csv").write_text(table("file,label", NAMES, SIZES))
    (flat.parent / "b.csv").write_text(table("file,label", NAMES, SIZES))
    assert options(flat) == ["a.csv:label", "b.csv:label", "none"]


@pytest.mark.parametrize("csv", ["a,b\n1,2\n", "file,label\nx.jpg,1\n", "file,label\n0.jpg,'\xff"])
def test_table_of_something_else_is_no_label(flat: Path, csv: str) -> None:
    (flat / "table.csv").write_text(csv, encoding="latin-1")
    (made,) = drafts(flat)
    assert made.label == "no label"
    assert "# labels: labels.csv, with the columns file,label" in text([made])


@pytest.mark.parametrize(
    ("labels", "first_row", "written"),
    [
        (SIZES, None, "labels: flat/labels.csv"),
        ([f"about {name}" for name in NAMES], None, "labels: flat/labels.csv"),
        ([0.5, 1, 2, 3, 4, 5], None, "- string_to_number: {field: label}"),
        (COLOURS, "0.jpg,2", f"labels: {WRITTEN}"),
    ],
    ids=["integers", "free text", "fractions", "classes"],
)
def test_labels_of_each_image_are_taken(
    flat: Path, labels: list[object], first_row: str | None, written: str
) -> None:
    (made,) = drafts(flat, table("file,label", NAMES, labels))
    rows = [content.splitlines()[1] for content in made.files.values()]
    assert rows == [first_row] * (first_row is not None)
    assert written in text([made])
    # What init wrote is not taken for a CSV of the user's.
    for name, content in made.files.items():
        (flat.parent / name).write_text(content)
    assert drafts(flat)[0].files == made.files


def test_chosen_csv_may_lack_images_and_have_other_rows(flat: Path) -> None:
    (flat / "t.csv").write_text(
        "path,breed\n/old/flat/0.jpg,pug\nother/3.jpg,pug\n1.jpg,boxer\n2.jpg,pug\n4.jpg,pug\n3.jpg\nx.jpg,pug\n"
    )
    (made,) = drafts(flat, labels=f"{flat}/t.csv")
    assert made.label == "label is the column breed of t.csv: 2 values: 0 boxer, 1 pug"
    assert made.files[WRITTEN].splitlines() == [
        "file,label",
        "0.jpg,1",
        "1.jpg,0",
        "2.jpg,1",
        "4.jpg,1",
    ]
    assert "# 3 rows of t.csv have no image here, or no label" in text([made])
    assert "on_error: substitute  # 2 images have no label" in text([made])
    assert drafts(flat, labels="none")[0].label == "no label"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("gone.csv", "--labels gone.csv: no such file; give a CSV, CSV:COLUMN, folders or none"),
        ("labels.csv:bred", "no column 'bred' in .*; it has: breed"),
        ("folders", "but these are in none: 0.jpg"),
        ("other.csv", "no column names images below .* such as '0.jpg'; write a CSV of file,label"),
        ("two.csv", "0.jpg has two labels in the column 'label', 1 and 2; delete one of the rows"),
    ],
)
def test_labels_that_cannot_be_taken_are_refused(
    flat: Path, option: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(flat)
    (flat / "other.csv").write_text("a,b\nx,y\nz,w\n")
    (flat / "two.csv").write_text("file,label\n0.jpg,1\n0.jpg,2\n")
    with pytest.raises(SourceError, match=message):
        drafts(flat, table("file,breed", NAMES, COLOURS), option)


def test_photos_that_exif_turns_are_turned(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, orientation in enumerate((1, 6)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.new("RGB", (40, 30)).save(folder / f"{number}.jpg", exif=exif)
    written = text(drafts(folder))
    assert "JPEG, height 30 to 40 (median 35), width 30 to 40 (median 35), 1 of 2 turned" in written
    assert "decode_image: {field: image, channels: 3, exif: apply}" in written


def test_class_folders_win_over_a_csv(tmp_path: Path) -> None:
    names = ["cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg"]
    pets = write_images(tmp_path / "pets", *names)
    (made,) = drafts(pets, table("file,label", names, [1, 2, 1, 2]))
    assert "labels: folders" in text([made])
    assert made.label == "label is the class folder: 2 classes: 0 cat, 1 dog"


def test_images_outside_of_class_folders_have_no_label(tmp_path: Path) -> None:
    pets = write_images(tmp_path / "pets", "cat/0.jpg", "dog/0.jpg", "stray.jpg")
    assert drafts(pets)[0].label == "no label; some images are in no class folder"


def test_parts_with_different_folders_are_refused(tmp_path: Path) -> None:
    parts = ("train/ape/0.jpg", "train/cat/0.jpg", "train/dog/0.jpg", "val/cat/0.jpg", "test/0.jpg")
    pets = write_images(tmp_path / "pets", *parts)
    for folder in (pets, pets / "val", pets / "train"):
        with pytest.raises(SourceError, match=r"empty ones: mkdir .*/val/ape .*/val/dog$"):
            drafts(folder)
    (pets / "val" / "ape").mkdir()
    (pets / "val" / "dog").mkdir()
    made = [(draft.name, draft.label) for draft in drafts(pets)]
    classes = "label is the class folder: 3 classes: 0 ape, 1 cat, 2 dog"
    assert made == [("pets-test", "no label"), ("pets-train", classes), ("pets-val", classes)]


def test_classes_of_a_csv_have_one_number_in_all_parts(tmp_path: Path) -> None:
    names = ["train/0.jpg", "train/1.jpg", "val/0.jpg", "val/1.jpg"]
    pets = write_images(tmp_path / "pets", *names)
    (pets / "t.csv").write_text(table("file,label", names, "abbb"))
    assert options(pets) == ["t.csv:label", "none"]
    train, val = drafts(pets, labels=f"{pets}/t.csv")
    assert train.files["pets-train-labels.infeed.csv"].splitlines()[1:] == ["0.jpg,0", "1.jpg,1"]
    assert val.files["pets-val-labels.infeed.csv"].splitlines()[1:] == ["0.jpg,1", "1.jpg,1"]
