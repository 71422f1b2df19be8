"""Labels of images in tables' columns: used, asked about, or rejected with a reason."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image
from tests.harness.datasets import jpeg

from infeed.shared.errors import SourceError
from infeed_tools.init.detect import starter_for
from infeed_tools.init.draft import Draft
from infeed_tools.init.listing import UnclearError
from infeed_tools.init.looks import is_number
from infeed_tools.init.readings import Reading, Tree, choose
from infeed_tools.init.tables import Table

PICTURE = jpeg(0)
NAMES = [f"{number}.jpg" for number in range(6)]
SIZES = [100, 100, 200, 200, 300, 300]
COLOURS = ["red", "green", "blue", "red", "green", "blue"]


def rows(header: str, *columns: Iterable[object]) -> list[list[str]]:
    return [header.split(","), *([*map(str, row)] for row in zip(*columns, strict=True))]


def read(
    table: list[list[str]], images: Iterable[str] = NAMES, labels: str | None = None
) -> Reading:
    return choose(Tree("flat", [*images], [Table("labels.csv", table)]), labels=labels)


def options(table: list[list[str]], images: Iterable[str] = NAMES) -> list[str]:
    with pytest.raises(UnclearError) as caught:
        read(table, images)
    return [choice["labels"] for choice, _ in caught.value.choices]


def write_images(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(PICTURE)
    return folder


def drafts(folder: Path, **given: str) -> list[Draft]:
    return [*starter_for(str(folder), folder.parent, **given).drafts.values()]


def test_label_is_the_column_that_says_so() -> None:
    found = read(rows("id,image,part,ClassId", range(6), NAMES, ["train"] * 6, COLOURS))
    assert found.label == "column ClassId of labels.csv"
    assert found.values == COLOURS
    assert found.classes == ["blue", "green", "red"]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (rows("file,width,height", NAMES, SIZES, SIZES), ["width", "height"]),
        (rows("file,breed", NAMES, COLOURS), ["breed"]),
        (rows("file,label,class", NAMES, SIZES, SIZES), ["label", "class"]),
        (rows("file,label", NAMES[:5], SIZES[:5]), ["label"]),
        (rows("file,label", [*NAMES, "0.jpg"], [*SIZES, 200]), ["label"]),
        (rows("file,MEL,NV", NAMES, [0, 1] * 3, [1, 0] * 3), ["MEL", "NV"]),
        (rows("file,label", NAMES, ["Cat", "cat", "dog"] * 2), ["label"]),
        (rows("file,label,split", NAMES, COLOURS, ["train", "test"] * 3), ["label", "split"]),
        (rows("file,x,y", NAMES, SIZES, [3, 7] * 3), ["x", "y"]),
        (rows("file,breed,label_source", NAMES, COLOURS, "aabbbb"), ["breed", "label_source"]),
        (rows("file,tags,num_classes", NAMES, COLOURS, [1, 2, 3] * 2), ["tags", "num_classes"]),
        (rows("file,label_1", NAMES, COLOURS), ["label_1"]),
        (rows("file,label", NAMES, ["1 2 3 4", "5 6 7 8", "cat .1 .2"] * 2), ["label"]),
    ],
    ids=[
        *("sizes", "no word", "two words", "without", "with two", "one-hot", "case", "split"),
        *("place", "about labels", "count", "one of several", "boxes"),
    ],
)
def test_column_that_is_not_clearly_the_label_is_not_guessed(
    table: list[list[str]], expected: list[str]
) -> None:
    choices = [f"labels.csv:{name}" for name in expected]
    assert options(table) == [*choices, "none"]
    assert read(table, labels=choices[0]).options["labels"] == choices[0]


@pytest.mark.parametrize("name", ["y", "class", "target_id", "Category Name", "LABEL_IDX"])
def test_name_that_is_a_label_word_is_the_label(name: str) -> None:
    assert read(rows(f"file,{name},size", NAMES, COLOURS, SIZES)).values == COLOURS


@pytest.mark.parametrize(
    ("names", "cells"),
    [
        (["0001.jpg", "0002.jpg"], ["1", "2"]),
        (["0001.jpg", "0002.jpg"], ["1.0", "2.0"]),
        (["A.JPG", "b.jpg"], ["a.jpg", "B.JPG"]),
        (["a b.jpg", "c.jpg"], ["a%20b.jpg", "c.jpg"]),
    ],
    ids=["zeros", "pandas", "case", "URL"],
)
def test_names_that_differ_are_asked_for(names: list[str], cells: list[str]) -> None:
    with pytest.raises(UnclearError) as caught:
        read(rows("id,label", cells, [0, 1]), names)
    (_, text), _ = caught.value.choices
    assert "2 for " in text
    assert text.endswith(f", if {cells[0]!r} is {names[0]}")


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["0_9", "10_19"] * 3, ["0_9", "10_19"]),
        (["nan", "inf"] * 3, ["inf", "nan"]),
        (["1_000", "2"] * 3, ["1_000", "2"]),
        ([str(1 << 63), "1"] * 3, ["1", str(1 << 63)]),
        (["1", "002", "001"] * 2, ["001", "1", "002"]),
        (["1", "2.5", "-3e4"] * 2, []),
        ([f"about {name}" for name in NAMES], []),
    ],
)
def test_words_are_classes_and_numbers_are_none(values: list[str], classes: list[str]) -> None:
    table = rows("file,label", NAMES, values)
    assert read(table, labels="labels.csv:label").classes == classes
    assert not is_number("\u0661")


TURNED = [*reversed(NAMES)]
STEMS = [name[:-4] for name in NAMES]


@pytest.mark.parametrize(
    ("header", "first", "second"),
    [
        ("id,image_id,label", range(6), reversed(range(6))),
        (",image_id,label", range(6), reversed(range(6))),
        ("previous,file,label", NAMES, TURNED),
        ("url,id,label", [f"x{name}" for name in NAMES], range(6)),
        ("id,filename,label", range(6), [f"{name}.jpeg" for name in reversed(STEMS)]),
    ],
    ids=["numbers", "index", "two files", "other files", "endings"],
)
def test_column_that_names_the_images_is_not_guessed(
    header: str, first: Iterable[object], second: Iterable[object]
) -> None:
    table = rows(header, first, second, COLOURS)
    with pytest.raises(UnclearError) as caught:
        read(table)
    for given, text in caught.value.choices:  # each choice works
        assert read(table, labels=given["labels"]).describe() == text


def test_column_that_names_the_images_is_chosen() -> None:
    table = rows("id,image_id,label", range(6), reversed(range(6)), COLOURS)
    assert options(table) == ["labels.csv:id:label", "labels.csv:image_id:label", "none"]
    chosen = read(table, labels="labels.csv:image_id:label")
    assert chosen.parts[0].labels == dict(zip(TURNED, COLOURS, strict=True))
    assert chosen.notes[0] == "column image_id names the images in labels.csv, not id"


@pytest.mark.parametrize(
    ("name", "others"),
    [("filename", range(6)), ("file", NAMES[:3] * 2), ("file", ["", *NAMES[:5]])],
    ids=["row", "file of several", "previous"],
)
def test_full_names_of_all_images_name_the_rows(name: str, others: Iterable[object]) -> None:
    found = read(rows(f"other,{name},label", others, TURNED, COLOURS))
    assert found.parts[0].labels == dict(zip(TURNED, COLOURS, strict=True))
    assert found.notes == [f"column {name} names the images in labels.csv, not other"]


def test_rows_that_contradict_give_no_label() -> None:
    cells = [*(f"other/{name}" for name in NAMES[:2]), *(f"flat/{name}" for name in NAMES)]
    table = rows("file,label", cells, [*range(10, 12), *range(6)])
    assert options(table) == ["labels.csv:label", "none"]
    found = read(table, labels="labels.csv")
    assert found.values == [*"2345"]
    assert found.notes == ["rows of labels.csv that contradict others: 4"]


@pytest.mark.parametrize("others", [["pink", *COLOURS[1:]], ["pink", "grey"] * 3])
def test_tables_that_contradict_each_other_are_a_choice(others: list[str]) -> None:
    old = Table("labels_old.csv", rows("file,label", NAMES, others))
    tree = Tree("flat", NAMES, [Table("labels.csv", rows("file,label", NAMES, COLOURS)), old])
    with pytest.raises(UnclearError, match=r"labels.csv and labels_old.csv contradict") as caught:
        choose(tree)
    choices = [choice["labels"] for choice, _ in caught.value.choices]
    assert choices[-3:] == ["labels.csv:label", "labels_old.csv:label", "none"]
    assert choose(tree, labels="labels.csv").values == COLOURS
    assert choose(tree, labels="labels_old.csv:label").values == others


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (rows("file,label", NAMES, [0.5] * 6), "all images have the same value"),
        (rows("file", NAMES), "its rows, such as 0.jpg and 5 more, hold only names"),
        (rows("id,label", range(20), range(20)), "its rows, such as 0, 0 and 19 more, name no"),
        (rows("file,label", ["x.jpg", "y.jpg"], "12"), "its rows, such as x.jpg, 1 and 1 more"),
    ],
    ids=["one value", "names", "numbers", "other images"],
)
def test_table_without_labels_is_named_with_the_reason(table: list[list[str]], reason: str) -> None:
    found = read(table)
    assert found.label == "none"
    assert found.notes[0].startswith(f"labels.csv is not used: {reason}")


def test_a_first_line_that_names_an_image_is_no_header() -> None:
    table = rows("0.jpg,n01,0,1", NAMES, ["n01", "n02"] * 3, range(6), range(6))[1:]
    assert "labels.csv:column2" in options(table)
    chosen = read(table, labels="labels.csv:column2")
    assert chosen.values == ["n01", "n02"] * 3


def test_text_labels_of_parts_are_numbered_alike(tmp_path: Path) -> None:
    for part, classes in (("train", "abab"), ("val", "bbcc")):
        folder = write_images(tmp_path / "pets" / part, *NAMES[:4])
        cells = "".join(f"{name},{text}\n" for name, text in zip(NAMES, classes, strict=False))
        (folder / "l.csv").write_text(f"file,label\n{cells}")
    train, val = drafts(tmp_path / "pets")
    assert train.classes == val.classes == ["a", "b", "c"]
    assert val.source["labels"] == {"table": "pets/val/l.csv", "classes": ["a", "b", "c"]}
    assert not val.files


def test_parts_with_different_folders_have_one_numbering(tmp_path: Path) -> None:
    parts = ("train/ape/0.jpg", "train/cat/1.jpg", "train/dog/2.jpg", "val/dog/0.jpg", "test/0.jpg")
    test, train, val = drafts(write_images(tmp_path / "pets", *parts))
    assert "labels" not in test.source
    assert train.source["labels"] == val.source["labels"] == {"folders": ["ape", "cat", "dog"]}


def test_a_file_that_is_named_is_taken_alone(tmp_path: Path) -> None:
    data = write_images(tmp_path / "d", *(f"images/{name}" for name in NAMES))
    (data / "train.csv").write_text("file,label\n0.jpg,ant\n1.jpg,bee\n2.jpg,ant\n")
    (data / "val.csv").write_text("file,label\n3.jpg,bee\n4.jpg,cow\n5.jpg,bee\n")
    (val,) = drafts(data / "val.csv")
    assert (val.name, val.is_for_training, val.samples) == ("images-val", False, 3)
    assert val.classes == ["ant", "bee", "cow"]
    assert val.source["labels"] == {"table": "val.csv", "classes": val.classes}
    lines = [f"images/{name}" for name in NAMES[:3]]
    assert val.files["images-val-without-label.infeed.txt"].split() == lines
    assert val.definition()["remove"]["then"] == "shrink"
    (train,) = drafts(data, labels=f"{data}/train.csv:label")
    assert (train.is_for_training, train.samples) == (True, 3)
    (both,) = drafts(data, labels=f"{data}/train.csv,{data}/val.csv")
    assert (both.samples, both.definition().get("remove")) == (6, None)


@pytest.mark.parametrize(("name", "on_error"), [("train", "substitute"), ("val", "mask")])
def test_bad_samples_of_an_evaluation_are_masked(name: str, on_error: str) -> None:
    assert Draft(name, {}, 3, bad="c has nulls").definition()["on_error"] == on_error


def test_one_label_of_a_whole_part_is_asked_for() -> None:
    images = [f"{part}/{part}{name}" for part in ("train", "test") for name in NAMES]
    table = rows("file,label", images, [*COLOURS, *["none"] * 6])
    with pytest.raises(UnclearError, match="all labels of test are 'none', which may mean none"):
        read(table, images)


def test_photos_that_exif_turns_are_turned(tmp_path: Path) -> None:
    for number, orientation in enumerate((1, 6)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.new("RGB", (40, 30)).save(tmp_path / f"{number}.jpg", exif=exif)
    (draft,) = drafts(tmp_path)
    assert draft.fields["image"] == "JPEG, height 30 to 40, width 30 to 40, 1 of 2 turned by EXIF"
    decode = {"field": "image", "channels": 3, "exif": "apply"}
    assert draft.transforms[0] == {"decode_image": decode}


def test_examples_are_of_images_that_can_be_opened(tmp_path: Path) -> None:
    names = [f"{name}/{number:02}.jpg" for name in "ab" for number in range(40)]
    (write_images(tmp_path / "d", *names) / "b" / "zz.jpg").write_text("hello")
    (draft,) = drafts(tmp_path / "d")
    assert draft.fields["image"].endswith(" (64 read)")
    assert draft.notes == ["1 of the 64 images read cannot be opened"]
    assert (draft.examples[0], draft.examples[-1]) == ("a/00.jpg: 0", "b/38.jpg: 1")


@pytest.mark.parametrize(("column", "text"), [("label", "3 {0} 5 6"), ("bbox_left", "{0}")])
def test_images_whose_labels_are_places_are_not_moved(
    column: str, text: str, tmp_path: Path
) -> None:
    data = write_images(tmp_path / "d", *NAMES)
    cells = "".join(f"{name},{text.format(n)}\n" for n, name in enumerate(NAMES))
    (data / "l.csv").write_text(f"file,{column}\n{cells}")
    (draft,) = drafts(data, labels=f"{data}/l.csv")
    assert [*map(next, map(iter, draft.transforms))] == ["decode_image", "resize", "normalize"]
    assert draft.notes[0].startswith("image gets no random crop or flip, because label may hold")


def test_fractions_are_parsed_in_the_pipeline(tmp_path: Path) -> None:
    data = write_images(tmp_path / "d", *NAMES)
    (data / "l.csv").write_text("".join(f"{name},{n}.5\n" for n, name in enumerate(NAMES)))
    (draft,) = drafts(data, labels=f"{data}/l.csv")
    assert draft.transforms[-1] == {"string_to_number": {"field": "label"}}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "absent.txt",
            "--labels absent.txt: no such file; give a CSV, CSV:COLUMN, .*, or one of folders",
        ),
        (
            "labels.csv:bred",
            r"no such column of labels\. Found: other.*; labels.csv:breed",
        ),
        ("folders", "the images in d, such as 0.jpg, are not in class folders; move them"),
        ("boxes.json", "boxes.json is JSON, not a table; write its labels as CSV or JSON li"),
        ("other.csv", "other.csv is not used: its rows, such as x, y"),
    ],
)
def test_labels_that_cannot_be_taken_are_refused(
    option: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_images(tmp_path / "d", *NAMES)
    monkeypatch.chdir(data)
    (data / "labels.csv").write_text("file,breed\n0.jpg,a\n1.jpg,b\n2.jpg,a\n3.jpg,b\n")
    (data / "other.csv").write_text("a,b\nx,y\nz,w\n")
    (data / "boxes.json").write_text("{}")
    with pytest.raises(SourceError, match=message):
        drafts(data, labels=option)
