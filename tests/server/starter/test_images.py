"""Starters for images: labels of a CSV and of folders, and what is said of those left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image
from tests.harness.datasets import jpeg

from infeed.shared.errors import SourceError
from infeed_server.starter.detect import starter_for
from infeed_server.starter.draft import Starter, UnclearError

PICTURE = jpeg(0)
NAMES = [f"{number}.jpg" for number in range(6)]
SIZES = [100, 100, 200, 200, 300, 300]
COLOURS = ["red", "green", "blue", "red", "green", "blue"]


def write_images(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(PICTURE)
    return folder


def table(header: str, *columns: Iterable[object]) -> str:
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([header, *rows]) + "\n"


def starter(folder: Path, csv: str = "", labels: str | None = None) -> Starter:
    if csv:
        (folder / "labels.csv").write_text(csv, encoding="latin-1")
    return starter_for(str(folder), folder.parent, labels)


def text(starter: Starter) -> str:
    return starter.text("infeed init", "pipelines.yaml")


def options(folder: Path, option: str | None = None) -> list[str]:
    """Returns the values of `--labels` among which one must be chosen."""
    with pytest.raises(UnclearError, match="it is not clear which column is the label") as e:
        starter(folder, labels=option)
    return [value.rpartition("/")[2] for value, _ in e.value.choices]


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return write_images(tmp_path / "flat", *NAMES)


def test_label_is_the_column_that_says_so(flat: Path) -> None:
    made = starter(flat, table("id,image,part,BreedLabel", range(6), NAMES, ["train"] * 6, COLOURS))
    (content,) = made.files.values()
    assert content.splitlines()[:4] == ["file,label", "0.jpg,2", "1.jpg,1", "2.jpg,0"]
    assert made.label_lines() == [
        "flat: label is the column BreedLabel of labels.csv: 3 different values: 0 blue, 1 green, "  # noqa: ISC004
        "2 red; 0.jpg has 2"
    ]


@pytest.mark.parametrize(
    ("csv", "expected"),
    [
        (table("file,width,height", NAMES, SIZES, SIZES), ["width", "height"]),
        (table("file,breed", NAMES, COLOURS), ["breed"]),
        (table("file,label,class", NAMES, SIZES, SIZES), ["label", "class"]),
        (table("file,label", NAMES[:5], SIZES[:5]), ["label"]),
        (table("file,label", [*NAMES, "0.jpg"], [*SIZES, 200]), ["label"]),
    ],
    ids=["sizes", "no word", "two words", "an image without", "an image with two"],
)
def test_column_that_is_not_clearly_the_label_is_not_guessed(
    flat: Path, csv: str, expected: list[str]
) -> None:
    (flat / "table.csv").write_text(csv)
    assert options(flat) == [*(f"table.csv:{column}" for column in expected), "none"]
    made = starter(flat, labels=f"{flat}/table.csv:{expected[0]}")
    assert f"label is the column {expected[0]} of table.csv" in made.label_lines()[0]


def test_label_is_not_guessed_between_files(flat: Path) -> None:
    # Beside the folder, a CSV must be of its images alone.
    (flat.parent / "b.csv").write_text(table("file,label", [*NAMES, "9.jpg"], [*SIZES, 100]))
    assert options(flat) == ["b.csv:label", "none"]
    (flat / "a.csv").write_text(table("file,label", NAMES, SIZES))
    (flat.parent / "b.csv").write_text(table("file,label", NAMES, SIZES))
    assert options(flat) == ["a.csv:label", "b.csv:label", "none"]


def test_rows_of_another_folder_are_not_of_this_one(flat: Path) -> None:
    write_images(flat.parent, *(f"other/{name}" for name in NAMES))
    rows = [f"other/{name}" for name in NAMES] + [f"flat/{name}" for name in NAMES]
    (flat.parent / "l.csv").write_text(table("file,label", rows, [*range(10, 16), *range(6)]))
    assert options(flat) == ["l.csv:label", "none"]
    made = starter(flat, labels=str(flat.parent / "l.csv"))
    assert made.files["flat-labels.infeed.csv"].splitlines()[1:3] == ["0.jpg,0", "1.jpg,1"]


@pytest.mark.parametrize(
    ("csv", "written"),
    [
        (table("file,label", NAMES, [0.5] * 6), "all images have the same values"),
        (table("id,label", range(20), range(20)), "no column names images below this folder"),
        ("file,label\n0.jpg,r\xe9\n", "labels.csv is not UTF-8 text"),
        (table("file,label", ["x.jpg", "y.jpg"], "12"), "no column names images below this folder"),
    ],
    ids=["one value", "numbers", "not UTF-8", "other images"],
)
def test_csv_without_labels_is_named_with_the_reason(flat: Path, csv: str, written: str) -> None:
    made = starter(flat, csv)
    assert made.label_lines() == ["flat: no label was found"]
    (line,) = [line for line in text(made).splitlines() if "is not used" in line]
    assert line.strip().startswith("# labels.csv is not used: ")
    assert line.endswith(written)


@pytest.mark.parametrize(
    ("csv", "first_row", "written"),
    [
        (table("file,label", NAMES, COLOURS), "0.jpg,2", ""),
        (table("file,label", NAMES, [f"about {name}" for name in NAMES]), None, ""),
        (
            table("file,label", NAMES, [0.5, 1, 2, 3, 4, 5]),
            None,
            "- string_to_number: {field: label}",
        ),
        (
            table(
                "file,label", [f"other{n}.jpg" for n in range(300)] + NAMES, [*range(300), *SIZES]
            ),
            "0.jpg,100",
            "# left out: 300 rows of labels.csv without an image",
        ),
        (
            table("gone.jpg,red", NAMES, COLOURS),
            "0.jpg,2",
            "# left out: 1 row of labels.csv without an image",
        ),
    ],
    ids=["classes", "free text", "fractions", "a larger data set", "no header"],
)
def test_labels_that_the_source_does_not_read_are_written(
    flat: Path, csv: str, first_row: str | None, written: str
) -> None:
    made = starter(flat, csv)
    rows = [content.splitlines()[1] for content in made.files.values()]
    assert rows == [first_row] * (first_row is not None)
    name = "flat-labels.infeed.csv" if first_row else "flat/labels.csv"
    assert f"labels: {name}" in text(made)
    assert written in text(made)
    # What init wrote is not taken for a CSV of the user's.
    for name, content in made.files.items():
        (flat.parent / name).write_text(content)
    assert starter(flat).files == made.files


def test_rows_that_are_left_out_have_their_reason(flat: Path) -> None:
    rows = "file,label\n0.jpg,1\n1.jpg,\n2.jpg,2\n3.jpg,1\n4.jpg,1\n5.jpg,2\n9.jpg,1\n0.jpg,2\n"
    (flat / "labels.csv").write_text(rows)
    made = starter(flat, labels=str(flat / "labels.csv"))
    for lack in ("an image", "a label", "the label of an earlier row of the image"):
        assert f"# left out: 1 row of labels.csv without {lack}\n" in text(made)
    assert "on_error: substitute  # 1 without a label" in text(made)
    assert "0.jpg,1" in made.files["flat-labels.infeed.csv"]


def test_csv_that_is_named_may_lack_images_and_a_word(flat: Path) -> None:
    (flat / "t.csv").write_text("file,breed\n0.jpg,1\n1.jpg,2\nx.jpg,1\ny.jpg,1\nz.jpg,1\n")
    made = starter_for(str(flat / "t.csv"), flat.parent)
    assert "label is the column breed of t.csv" in made.label_lines()[0]
    assert "on_error: substitute  # 4 without a label" in text(made)
    assert starter(flat, labels="none").label_lines() == ["flat: no label"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("gone.csv", "--labels gone.csv: no such file; give a CSV, CSV:COLUMN, folders or none"),
        ("labels.csv:bred", "no column 'bred' in .*; it has: breed"),
        ("folders", "--labels folders: 6 images below .* are in no class folder, such as 0.jpg"),
        ("other.csv", "no column names images below .*, which are named like '0.jpg'"),
    ],
)
def test_labels_that_cannot_be_taken_are_refused(
    flat: Path, option: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(flat)
    (flat / "other.csv").write_text("a,b\nx,y\nz,w\n")
    with pytest.raises(SourceError, match=message):
        starter(flat, table("file,breed", NAMES, COLOURS), option)


def test_photos_that_exif_turns_are_turned(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, orientation in enumerate((1, 6)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.new("RGB", (40, 30)).save(folder / f"{number}.jpg", exif=exif)
    written = text(starter(folder))
    assert "JPEG, height 30 to 40 (median 35), width 30 to 40 (median 35), 1 of 2 turned" in written
    assert "decode_image: {field: image, channels: 3, exif: apply}" in written


def test_images_of_other_formats_are_counted(flat: Path) -> None:
    write_images(flat, "a.webp", "b.WEBP", "c.bmp", "d.txt")
    assert "# left out: 1 .bmp, 2 .webp; convert them to JPEG or PNG" in text(starter(flat))


def test_class_folders_win_over_a_csv(tmp_path: Path) -> None:
    names = ["cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg"]
    pets = write_images(tmp_path / "pets", *names)
    made = starter(pets, table("file,label", names, [1, 2, 1, 2]))
    assert "labels: folders" in text(made)
    assert "# labels.csv is not used; for its labels: --labels " in text(made)
    assert made.label_lines() == [
        "pets: label is the class folder: 2 classes, in each folder 2 images: 0 cat, 1 dog; "  # noqa: ISC004
        "cat/0.jpg has 0"
    ]


def test_images_outside_of_class_folders_are_named(tmp_path: Path) -> None:
    pets = write_images(tmp_path / "pets", "cat/0.jpg", "dog/0.jpg", "stray.jpg")
    written = text(starter(pets))
    assert "1 images are in no class folder, such as stray.jpg; move them" in written


def test_folder_above_the_class_folders_names_them(tmp_path: Path) -> None:
    data = write_images(tmp_path / "data", "photos/cat/0.jpg", "photos/dog/0.jpg").parent
    (line,) = starter(data / "data").label_lines()
    remedy = f"if the folders of photos are classes, give {data / 'data' / 'photos'}"
    assert line == f"data: no label was found; {remedy}"


def test_parts_with_different_folders_have_one_numbering(tmp_path: Path) -> None:
    parts = ("train/ape/0.jpg", "train/cat/0.jpg", "train/dog/0.jpg", "val/dog/0.jpg", "test/0.jpg")
    pets = write_images(tmp_path / "pets", *parts)
    made = starter(pets)
    assert [*made.files] == ["pets-val-labels.infeed.csv"]
    assert made.files["pets-val-labels.infeed.csv"].splitlines()[1:] == ["dog/0.jpg,2"]
    assert "labels: pets-val-labels.infeed.csv" in text(made)
    assert made.label_lines()[0] == "pets-test: no label was found"
    alone = starter(pets / "val")
    assert alone.files["val-labels.infeed.csv"].splitlines()[1:] == ["dog/0.jpg,2"]


def test_csv_of_all_parts_labels_each_by_its_path(tmp_path: Path) -> None:
    names = ["train/0.jpg", "train/1.jpg", "val/0.jpg", "val/1.jpg"]
    pets = write_images(tmp_path / "pets", *names)
    made = starter(pets, table("file,label", names, [3, 4, 5, 6]))
    assert made.files["pets-train-labels.infeed.csv"].splitlines()[1:] == ["0.jpg,3", "1.jpg,4"]
    assert made.files["pets-val-labels.infeed.csv"].splitlines()[1:] == ["0.jpg,5", "1.jpg,6"]


def test_text_labels_of_parts_are_not_numbered(tmp_path: Path) -> None:
    for part, classes in (("train", "abab"), ("val", "bbcc")):
        write_images(tmp_path / "pets" / part, *NAMES[:4])
        (tmp_path / "pets" / part / "l.csv").write_text(table("file,label", NAMES[:4], classes))
    made = starter(tmp_path / "pets")
    assert not made.files
    assert "number the classes alike in all parts" in text(made)
