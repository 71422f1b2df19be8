"""The `images` source: order, labels, and errors of the CSV."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed import ConfigError, SampleError, SourceError
from infeed_server.pipeline.load import parse
from infeed_server.sources.images.source import ImageReader, ImagesSource

Parse = Callable[..., dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of images by class, with other files among them."""
    root = tmp_path / "photos"
    for name in ("dog/b.jpg", "dog/a.JPEG", "cat/deep/x.png", "cat/y.Jpg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    for name in ("notes.txt", "dog/._b.jpg", "cat/thumbs.db"):
        (root / name).write_bytes(b"no image")
    (root / "ant").mkdir()
    return root


def open_images(folder: Path | str, labels: Path | str | None = None) -> ImageReader:
    return ImagesSource.model_validate({"images": folder, "labels": labels}).open()


def open_images_with_csv(folder: Path, text: str) -> ImageReader:
    csv = folder.parent / "labels.csv"
    csv.write_text(text)
    return open_images(folder, csv)


def test_images_without_labels(folder: Path, parse: Parse) -> None:
    source = open_images(folder)
    assert [parse(source, index) for index in range(len(source))] == [
        {"image": b"cat/deep/x.png"},
        {"image": b"cat/y.Jpg"},
        {"image": b"dog/a.JPEG"},
        {"image": b"dog/b.jpg"},
    ]
    assert set(source.columns) == {"image"}
    assert source.provenance(1).file == str(folder / "cat" / "y.Jpg")
    assert source.provenance(1).offset is None


def test_labels_from_folders(folder: Path, parse: Parse) -> None:
    source = open_images(folder, "folders")
    assert source.classes["label"] == ("cat", "dog")
    read = source.read(np.array([3, 0]))
    assert read["label"].tolist() == [1, 0]
    assert read["label"].dtype == np.int64
    assert parse(source, 2) == {"image": b"dog/a.JPEG", "label": 1}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_folders_without_images_are_no_classes_and_named(
    folder: Path, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    (folder / "annotations").mkdir()
    (folder / "annotations" / "b.xml").touch()
    (folder / "ant").rmdir()  # a store has no empty folders
    source = open_images(f"{scheme}{folder}", "folders")
    assert source.classes["label"] == ("cat", "dog")
    assert caplog.messages == [
        f"{scheme}{folder}: no image in 1 of the folders, which is not a class: annotations"
    ]


def test_folders_of_numbers_out_of_order_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(11):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a.jpg").touch()
    assert open_images(tmp_path, "folders").classes["label"][2] == "10"
    in_order = ", ".join(f"'{n}'" for n in range(11))
    (warning,) = caplog.messages
    assert "the folder 10 is class 2, because folders are sorted as text" in warning
    assert warning.endswith(f"labels: {{folders: [{in_order}]}}")
    (tmp_path / "10").rename(tmp_path / "9a")
    open_images(tmp_path, "folders")
    assert len(caplog.messages) == 1


def test_a_single_class_folder_is_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = folder.parent / "whole"
    whole.mkdir()
    folder.rename(whole / "images")
    assert open_images(whole, "folders").classes == {"label": ("images",)}
    (warning,) = caplog.messages
    assert warning == (
        f"{whole}: all images are in the folder images, so all labels are 0; if its folders are "
        f"the classes, write images: {whole}/images"
    )


def open_with_classes(folder: Path, *classes: str) -> ImageReader:
    labels = {"folders": [*classes]}
    return ImagesSource.model_validate({"images": folder, "labels": labels}).open()


def test_listed_folders_have_the_numbers_of_the_list(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_with_classes(folder, "dog", "wolf", "cat", "ant")
    assert source.classes["label"] == ("dog", "wolf", "cat", "ant")
    assert source.read(np.arange(4))["label"].tolist() == [2, 2, 0, 0]
    assert caplog.messages == [f"{folder}: no image in 2 of the listed classes: wolf, ant"]


def test_folder_outside_of_the_list_is_refused(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"the folder 'dog' of .*\(did you mean 'dogs'\?\)"):
        open_with_classes(folder, "cat", "dogs")


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"folders": ["cat", "dog", "cat"]}, "labels.folders: has 'cat' twice"),
        ({"folders": ["cat", 0]}, "labels.folders[1]: should be a valid string, not 0"),
        ({"folder": ["cat"]}, "labels: should have the key folders, a list of them, file_name, a"),
        ({"table": "x", "classes": ["a", "a"]}, "labels.classes: has 'a' twice"),
        ({"file_name": "("}, "labels.file_name: is not a valid regular expression"),
    ],
)
def test_wrong_labels_are_one_problem(labels: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"source": {"images": "x", "labels": labels}, "batch": 1})
    assert str(caught.value).startswith(f"source.{problem}")
    assert "\n" not in str(caught.value)


def test_image_outside_of_folders_is_refused(folder: Path) -> None:
    (folder / "loose.jpg").write_bytes(b"")
    with pytest.raises(SourceError, match=r"are in none: loose\.jpg"):
        open_images(folder, "folders")


ROWS = "cat/deep/x.png,0\n./cat/y.Jpg,1\ndog/a.JPEG,-2\ndog/b.jpg,+3\n"


@pytest.mark.parametrize(
    "text",
    [
        *(f"{header}{ROWS}" for header in ("file,label\n", "", "\ufeffFile, Label\n")),
        f"file_name,text\n{ROWS}",
        "label,width,file\n0,9,cat/deep/x.png\n1,9,cat/y.Jpg\n-2,9,dog/a.JPEG\n+3,9,dog/b.jpg\n",
    ],
)
def test_labels_from_csv(folder: Path, text: str) -> None:
    labels = open_images_with_csv(folder, text).read(np.arange(4))["label"]
    assert labels.tolist() == [0, 1, -2, 3]
    assert labels.dtype == np.int64


def test_labels_from_json_lines(folder: Path) -> None:
    table = folder / "metadata.jsonl"
    names = ("cat/deep/x.png", "cat/y.Jpg", "dog/a.JPEG", "dog/b.jpg")
    rows = [{"file_name": name, "label": n, "box": [1, 2]} for n, name in enumerate(names)]
    table.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert open_images(folder, table).read(np.arange(4))["label"].tolist() == [0, 1, 2, 3]
    for line, message in (
        ("[1]", r"line 1: \[1\] is not a JSON object"),
        ("{", "line 1: not JSON"),
    ):
        table.write_text(line)
        with pytest.raises(SourceError, match=message):
            open_images(folder, table)


def test_names_are_found_in_another_form_of_unicode(folder: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for name in ("x.jpg", "y.jpg"):
        (folder / decomposed).mkdir(exist_ok=True)
        (folder / decomposed / name).touch()
    source = open_images_with_csv(folder, f"{composed}/x.jpg,3\n{decomposed}/y.jpg,4\n")
    assert source.read(np.array([0, 1]))["label"].tolist() == [3, 4]
    listed = open_with_classes(folder, "cat", "dog", composed)
    assert listed.read(np.array([0]))["label"].tolist() == [2]
    both = ("e\u0323\u0302", "\u1eb9\u0302")  # of one composed form
    for form in both:
        (folder / f"{form}.jpg").touch()
    with pytest.raises(SourceError, match="which 2 images are called in other Unicode forms"):
        open_images_with_csv(folder, "\u1ec7.jpg,1\n")


def test_names_of_a_table_are_numbered_as_they_are_listed(folder: Path) -> None:
    csv = folder.parent / "labels.csv"
    csv.write_text("cat/deep/x.png,cat\ncat/y.Jpg,cat\ndog/a.JPEG,dog\n")
    labels = {"table": "labels.csv", "classes": ["dog", "ant", "cat"]}
    definition = ImagesSource.model_validate({"images": "photos", "labels": labels})
    definition = definition.resolve(folder.parent)
    source = definition.open()
    assert source.classes == {"label": ("dog", "ant", "cat")}
    assert source.read(np.arange(3))["label"].tolist() == [2, 2, 0]
    csv.write_text("cat/y.Jpg,cat\ndog/a.JPEG,dogs\n")
    message = r"labels\.csv, line 2: the label 'dogs' is not in the list .*\(did you mean 'dog'\?\)"
    with pytest.raises(SourceError, match=message):
        definition.open()


def test_csv_labels_not_all_integers_are_strings(folder: Path, parse: Parse) -> None:
    source = open_images_with_csv(
        folder,
        ROWS.replace("-2", "a cat, perhaps")
        .replace("a cat,", '"a cat,')
        .replace("perhaps", 'perhaps"'),
    )
    assert source.columns["label"].dtype == tf.string
    assert parse(source, 2)["label"] == b"a cat, perhaps"
    assert parse(source, 0)["label"] == b"0"


@pytest.mark.parametrize("label", ["001", "-01", "00", "9" * 19, "9" * 5_000])
def test_codes_and_longer_numbers_are_text(folder: Path, label: str) -> None:
    csv = open_images_with_csv(folder, ROWS.replace("-2", label))
    table = folder / "metadata.jsonl"
    rows = [("cat/y.Jpg", label), ("dog/a.JPEG", "1"), ("dog/b.jpg", 1), ("cat/deep/x.png", 0)]
    table.write_text("\n".join(json.dumps({"file": name, "label": n}) for name, n in rows))
    json_lines = open_images(folder, table)
    assert csv.read(np.arange(4))["label"].tolist() == [b"0", b"1", label.encode(), b"+3"]
    assert json_lines.read(np.arange(4))["label"].tolist() == [b"0", label.encode(), b"1", b"1"]


def test_images_without_a_row_are_counted_at_start(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(7):
        (folder / f"no{number}.jpg").touch()
    csv = folder.parent / "labels.csv"
    csv.write_text(ROWS)
    problem = (
        f"{csv} has nothing for 7 of the 11 images in '{folder}': "
        "no0.jpg, no1.jpg, no2.jpg, no3.jpg, no4.jpg and 2 more"
    )
    open_images(folder, csv).close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{problem}; they are bad samples (see on_error) unless remove lists them"
    ]


def test_image_without_csv_row_is_a_bad_sample(folder: Path) -> None:
    source = open_images_with_csv(folder, "file,label\ncat/y.Jpg,1\ndog/a.JPEG,2\n")
    assert source.read(np.array([2, 1]))["label"].tolist() == [2, 1]
    with pytest.raises(
        SampleError, match=r"sample 3 has no label: .*b\.jpg is not in .*labels\.csv"
    ) as caught:
        source.read(np.array([1, 3, 0]))
    assert caught.value.metadata == {
        "sample_id": "3",
        "file": str(folder / "dog" / "b.jpg"),
        "stage": "labels",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\n" + ROWS + "dog/c.jpg,1\n", r"line 6: 'dog/c\.jpg'.*named like 'cat/deep/x"),
        ("".join(f"{n}.jpg,1\n" for n in range(9)), r"'4\.jpg' and 4 more"),
        (ROWS + "cat/y.Jpg,1\n", r"line 5: 'cat/y\.Jpg' already has a label, on line 2"),
        (ROWS + "cat/y.Jpg\n", "line 5: 'cat/y.Jpg' is not a row of 2 columns"),
        (ROWS + "cat/y.Jpg,\n", "line 5: .* is not a row of 2 columns"),
        ("name,width,class\na,1,2\n", "columns are name, width, class; file"),
        ("", "is empty"),
        ("file,label\n", "has no labels; it needs rows of file,label"),
        ('file,label\n"cat', "line 2: unexpected end"),
        (ROWS + "gone.jpg,1\n", "'gone.jpg'; .*; delete these rows, or let infeed init FOLDER"),
    ],
)
def test_invalid_csv_is_refused(folder: Path, text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        open_images_with_csv(folder, text)


def test_missing_and_empty_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no folder .*nearest folder that exists"):
        open_images(tmp_path / "none" / "such")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.heic").write_bytes(b"")
    with pytest.raises(SourceError, match=r"none of its files ends with \.jpg, \.jpeg, \.jpe"):
        open_images(tmp_path / "empty")


def test_folder_links_are_followed_unless_cyclic(folder: Path) -> None:
    (folder / "wolf").symlink_to(folder / "dog")
    source = open_images(folder, "folders")
    assert len(source) == 6
    assert source.read(np.array([5]))["label"].tolist() == [2]
    (folder / "dog" / "loop").symlink_to(folder)
    with pytest.raises(SourceError, match="is a link to a folder that contains it"):
        open_images(folder)


def test_pipes_and_links_to_no_file_are_left_out_and_counted(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity = open_images(folder).identity
    for link in ("dog/z.jpg", "cat/deep/w.png", "notes.md"):
        (folder / link).symlink_to(folder / "gone" / "file")
    (folder / "dog" / "below.jpg").symlink_to(folder / "notes.txt" / "file")
    for link in ("dog/itself.jpg", "itself"):
        (folder / link).symlink_to(folder / link)
    os.mkfifo(folder / "dog" / "pipe.jpg")
    source = open_images(folder)
    assert (len(source), source.identity) == (4, identity)
    (record,) = caplog.records
    assert record.message == (
        f"{folder}: 5 images are skipped because they are broken links or not files, such as "
        "cat/deep/w.png"
    )


def identity_of(folder: Path | str, identity: str | None = None) -> str:
    return ImagesSource.model_validate({"images": folder, "identity": identity}).open().identity


def test_identity_follows_files_and_labels(folder: Path) -> None:
    plain = open_images(folder).identity
    moved = folder.rename(folder.parent / "elsewhere")
    assert open_images(moved).identity == plain
    first = open_images_with_csv(moved, ROWS).identity
    assert open_images_with_csv(moved, ROWS.replace("+3", "4")).identity != first != plain
    (moved / "dog" / "b.jpg").write_bytes(b"of another size")
    assert open_images(moved).identity != plain


@pytest.mark.parametrize(
    ("identity", "name", "size", "time", "content"),
    [
        ("names", True, False, False, False),
        (None, True, True, False, False),
        ("modified", True, True, True, True),
    ],
)
def test_identity_follows_what_is_chosen(
    folder: Path, identity: str | None, name: bool, size: bool, time: bool, content: bool
) -> None:
    image = folder / "dog" / "b.jpg"
    before = identity_of(folder, identity)
    assert identity_of(folder, identity) == before
    os.utime(image, ns=(1, 1))
    assert (identity_of(folder, identity) != before) == time
    image.write_bytes(b"dog/B.jpg")
    assert (identity_of(folder, identity) != before) == content
    image.write_bytes(b"longer than before")
    assert (identity_of(folder, identity) != before) == size
    image.write_bytes(b"dog/b.jpg")
    image.rename(folder / "dog" / "c.jpg")
    assert (identity_of(folder, identity) != before) == name


def test_remote_folder_equals_local_folder(folder: Path, parse: Parse) -> None:
    (folder / "ant").rmdir()  # a store has no empty folders
    local, remote = open_images(folder, "folders"), open_images(f"file://{folder}", "folders")
    assert remote.classes == local.classes
    assert [parse(remote, n) for n in range(4)] == [parse(local, n) for n in range(4)]
    for identity in ("names", "size"):
        assert identity_of(f"file://{folder}", identity) == identity_of(folder, identity)
    remote_identity = identity_of(f"file://{folder}")
    assert remote_identity == identity_of(f"file://{folder}", "modified")
    os.utime(folder / "cat" / "y.Jpg", ns=(10**9, 10**9))
    assert identity_of(f"file://{folder}") != remote_identity
    (folder.parent / "l.csv").write_text(ROWS)
    source = open_images(f"file://{folder}", f"file://{folder.parent}/l.csv")
    assert source.read(np.arange(4))["label"].tolist() == [0, 1, -2, 3]
    with pytest.raises(SourceError, match="no folder"):
        open_images(f"file://{folder}/none")


def test_file_names_outside_of_utf8(tmp_path: Path, parse: Parse) -> None:
    (tmp_path / os.fsdecode(b"\xff.jpg")).write_bytes(b"bytes")
    assert parse(open_images(tmp_path), 0) == {"image": b"bytes"}
