"""Starters for images: labels of a CSV and of folders, and what is said of those left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from PIL import Image
from tests.harness.datasets import jpeg

from infeed.shared.errors import SourceError
from infeed_server.starter.detect import starter_for
from infeed_server.starter.draft import Starter
from infeed_server.starter.labels import UnclearLabelsError

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
    return starter_for(str(folder), folder.parent)


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


def test_label_is_the_column_that_says_so(flat: Path) -> None:
    ids: list[object] = list(range(6))
    made = starter(
        flat, table("id,image,part,BreedLabel", ids, NAMES, ["train"] * 6, [*COLOURS, *COLOURS])
    )
    (content,) = made.files.values()
    assert content.splitlines()[:4] == ["file,label", "0.jpg,2", "1.jpg,1", "2.jpg,0"]
    assert made.label_lines() == [
        "flat: label is the column BreedLabel of labels.csv: 3 different values: 0 blue, 1 green, "  # noqa: ISC004
        "2 red; 0.jpg has 2"
    ]


def options(folder: Path, option: str | None = None) -> list[str]:
    """Returns the values of `--labels` among which one must be chosen."""
    with pytest.raises(UnclearLabelsError, match="it is not clear which column is the label") as e:
        starter_for(str(folder), folder.parent, option)
    return [value.rpartition("/")[2] for value, _ in e.value.options]


HALF: list[object] = [0.5] * 6
SIZES: list[object] = [100, 100, 200, 200, 300, 300]


@pytest.mark.parametrize(
    ("csv", "expected"),
    [
        (table("file,width,height", NAMES, SIZES, SIZES), ["width", "height"]),
        (table("file,breed", NAMES, [*COLOURS, *COLOURS]), ["breed"]),
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
    chosen = f"{flat}/table.csv:{expected[0]}"
    made = starter_for(str(flat), flat.parent, chosen)
    assert f"label is the column {expected[0]} of table.csv" in made.label_lines()[0]


def test_two_files_of_labels_are_not_guessed_between(flat: Path) -> None:
    (flat / "a.csv").write_text(table("file,label", NAMES, SIZES))
    (flat.parent / "b.csv").write_text(table("file,label", NAMES, SIZES))
    assert options(flat) == ["a.csv:label", "b.csv:label", "none"]


def test_csv_beside_the_folder_with_other_images_is_not_guessed(flat: Path) -> None:
    (flat.parent / "l.csv").write_text(table("file,label", [*NAMES, "9.jpg"], [*SIZES, 100]))
    assert options(flat) == ["l.csv:label", "none"]


def test_rows_of_another_folder_are_not_of_this_one(flat: Path, picture: bytes) -> None:
    write_images(flat.parent, picture, *(f"other/{number}.jpg" for number in range(6)))
    rows = [f"other/{name}" for name in NAMES] + [f"flat/{name}" for name in NAMES]
    labels: list[object] = [*range(10, 16), *range(6)]
    (flat.parent / "l.csv").write_text(table("file,label", [*rows], labels))
    assert options(flat) == ["l.csv:label", "none"]
    made = starter_for(str(flat), flat.parent, str(flat.parent / "l.csv"))
    assert made.files["flat-labels.infeed.csv"].splitlines()[1:3] == ["0.jpg,0", "1.jpg,1"]


def test_column_of_one_value_is_no_label(flat: Path) -> None:
    made = starter(flat, table("file,label", NAMES, HALF), "sample_submission.csv")
    written = text(made)
    assert "sample_submission.csv is not used: all images have the same values" in written
    assert made.label_lines() == ["flat: no label was found"]


def test_labels_that_init_wrote_are_not_taken_for_the_users(flat: Path) -> None:
    labels = table("file,label", NAMES, [*COLOURS, *COLOURS])
    made = starter(flat, labels)
    for name, content in made.files.items():
        (flat.parent / name).write_text(content)
    assert starter(flat).files == made.files


def test_class_folders_win_over_a_csv(tmp_path: Path, picture: bytes) -> None:
    names: list[object] = ["cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg"]
    write_images(tmp_path / "pets", picture, *map(str, names))
    made = starter(tmp_path / "pets", table("file,label", names, [1, 2, 1, 2]))
    assert "labels: folders" in text(made)
    assert "# labels.csv is not used; for its labels: --labels " in text(made)
    assert made.label_lines() == [
        "pets: label is the class folder: 2 classes, in each folder 2 images: 0 cat, 1 dog; "  # noqa: ISC004
        "cat/0.jpg has 0"
    ]


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
    (flat / "labels.csv").write_text(table("file,breed", NAMES, [*COLOURS, *COLOURS]))
    (flat / "other.csv").write_text("a,b\nx,y\nz,w\n")
    with pytest.raises(SourceError, match=message):
        starter_for(str(flat), flat, option)


def test_csv_that_is_named_needs_no_word_of_a_label(flat: Path) -> None:
    (flat / "t.csv").write_text(table("file,breed", NAMES, [*COLOURS, *COLOURS]))
    made = starter_for(str(flat / "t.csv"), flat.parent)
    assert "label is the column breed of t.csv" in made.label_lines()[0]


def test_no_labels_can_be_chosen(flat: Path) -> None:
    (flat / "labels.csv").write_text(table("file,label", NAMES, SIZES))
    made = starter_for(str(flat), flat.parent, "none")
    assert made.label_lines() == ["flat: no label"]


def test_first_row_of_a_csv_without_a_header_counts(flat: Path) -> None:
    rows = [f"{name},{label}" for name, label in zip(NAMES, [*COLOURS, *COLOURS], strict=True)]
    made = starter(flat, "\n".join(["gone.jpg,red", *rows]))
    assert "# left out: 1 row of labels.csv without an image" in text(made)
    assert made.label_lines()[0].startswith("flat: label is the column labels of labels.csv: 3 dif")
    (flat / "labels.csv").rename(flat / "sizes.csv")
    assert options(flat) == ["sizes.csv:sizes", "none"]


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


def test_classes_of_text_in_a_usual_csv_are_numbered(flat: Path) -> None:
    made = starter(flat, table("file,label", NAMES, [*COLOURS, *COLOURS]))
    assert made.files["flat-labels.infeed.csv"].splitlines()[1] == "0.jpg,2"


def test_free_text_is_kept(flat: Path) -> None:
    made = starter(flat, table("file,label", NAMES, [f"caption {name}" for name in NAMES]))
    assert not made.files
    assert "labels: flat/labels.csv" in text(made)


def test_fractions_are_parsed(flat: Path) -> None:
    made = starter(flat, table("file,label", NAMES, [0.5, 1, 2, 3, 4, 5]))
    (pipeline,) = yaml.safe_load(text(made))["pipelines"].values()
    assert {"string_to_number": {"field": "label"}} in pipeline["transforms"]
    assert pipeline["source"]["labels"] == "flat/labels.csv"


def test_csv_of_a_larger_data_set_labels_its_images(flat: Path) -> None:
    others: list[object] = [f"other{number}.jpg" for number in range(300)]
    made = starter(flat, table("file,label", [*others, *NAMES], [*range(300), *SIZES]))
    assert "# left out: 300 rows of labels.csv without an image" in text(made)
    assert made.files["flat-labels.infeed.csv"].splitlines()[1] == f"0.jpg,{SIZES[0]}"


def test_numbers_of_a_larger_table_are_not_names_of_images(flat: Path) -> None:
    made = starter(flat, table("id,label", [*range(20)], [*range(20)]))
    assert made.label_lines() == ["flat: no label was found"]


def test_csv_that_is_named_may_lack_most_images(flat: Path) -> None:
    (flat / "t.csv").write_text("file,label\n0.jpg,1\n1.jpg,2\nx.jpg,1\ny.jpg,1\nz.jpg,1\n")
    made = starter_for(str(flat), flat.parent, str(flat / "t.csv"))
    assert "on_error: substitute  # 4 images have no label" in text(made)


def test_rows_that_are_left_out_have_their_reason(flat: Path) -> None:
    rows = "file,label\n0.jpg,1\n1.jpg,\n2.jpg,2\n3.jpg,1\n4.jpg,1\n5.jpg,2\n9.jpg,1\n0.jpg,2\n"
    (flat / "labels.csv").write_text(rows)
    made = starter_for(str(flat / "labels.csv"), flat.parent)
    written = text(made)
    assert "# left out: 1 row of labels.csv without an image" in written
    assert "# left out: 1 row of labels.csv without a label" in written
    assert "# left out: 1 row of labels.csv without the label of an earlier row of the" in written
    assert "on_error: substitute  # 1 images have no label" in written
    assert "0.jpg,1" in made.files["flat-labels.infeed.csv"]


@pytest.mark.parametrize(
    ("csv", "reason"),
    [
        (b"file,label\n0.jpg,r\xe9\n", "is not UTF-8 text"),
        (b"file,label\nother.jpg,1\nmore.jpg,2\n", "no column names images below this folder"),
    ],
)
def test_csv_that_is_not_used_is_named_with_the_reason(flat: Path, csv: bytes, reason: str) -> None:
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
    write_images(tmp_path / "pets", picture, "test/0.jpg")
    made = starter(tmp_path / "pets")
    expected = ["ape/0.jpg,0", "dog/0.jpg,2"]
    assert [*made.files] == ["pets-val-labels.infeed.csv"]
    assert made.files["pets-val-labels.infeed.csv"].splitlines()[1:] == expected
    assert "labels: pets-val-labels.infeed.csv" in text(made)
    assert made.label_lines()[0] == "pets-test: no label was found"
    alone = starter(tmp_path / "pets" / "val")
    assert alone.files["val-labels.infeed.csv"].splitlines()[1:] == expected


def test_part_with_one_class_of_several_has_its_number(tmp_path: Path, picture: bytes) -> None:
    write_images(tmp_path / "pets", picture, "train/cat/0.jpg", "train/dog/0.jpg", "val/dog/0.jpg")
    made = starter(tmp_path / "pets")
    assert made.files["pets-val-labels.infeed.csv"].splitlines()[1:] == ["dog/0.jpg,1"]


def test_csv_of_all_parts_labels_each_by_its_path(tmp_path: Path, picture: bytes) -> None:
    names: list[object] = ["train/0.jpg", "train/1.jpg", "val/0.jpg", "val/1.jpg"]
    write_images(tmp_path / "pets", picture, *map(str, names))
    made = starter(tmp_path / "pets", table("file,label", names, [3, 4, 5, 6]))
    assert made.files["pets-train-labels.infeed.csv"].splitlines()[1:] == ["0.jpg,3", "1.jpg,4"]
    assert made.files["pets-val-labels.infeed.csv"].splitlines()[1:] == ["0.jpg,5", "1.jpg,6"]


def test_text_labels_of_parts_are_not_numbered(tmp_path: Path, picture: bytes) -> None:
    for part, classes in (("train", ["a", "b", "a", "b"]), ("val", ["b", "b", "c", "c"])):
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
