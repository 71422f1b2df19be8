"""Boxes from YOLO text files, and lines that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from infeed import SourceError

Parse = Callable[..., dict[str, Any]]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "labels"
    (folder / "in").mkdir(parents=True)
    (folder / "a.txt").write_text("1 0.5 0.5 0.5 0.25\r\n\n0 0.25 0.5 0.5 1\n")
    (folder / "in/c.txt").write_text("")
    (tmp_path / "deep.yaml").write_text("names: " + "[" * 2000)
    (tmp_path / "data.yaml").write_text("names: {0: cat, 1: dog}")
    return folder


def test_a_sample_has_the_boxes_of_its_file(open_labels: Any, texts: Path, parse: Parse) -> None:
    source = open_labels({"yolo": "labels", "names": "data.yaml"})
    assert source.classes == {"label": ("cat", "dog")}
    first = parse(source, 0)
    np.testing.assert_allclose(first["boxes"], [[0.25, 0.375, 0.75, 0.625], [0, 0, 0.5, 1]])
    assert first["label"].tolist() == [1, 0]
    assert [len(parse(source, index)["boxes"]) for index in (1, 2)] == [0, 0]
    bare = open_labels({"yolo": "labels"})
    assert (bare.classes, bare.exif) == ({}, "")


def test_shares_do_not_tell_what_exif_fits(open_labels: Any, texts: Path, pictures: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(pictures / "b.jpg", exif=exif)
    assert open_labels({"yolo": "labels"}).exif == "unclear"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cat 1 1 1", "a.txt, line 1: 'cat 1 1 1' is not of the form: class x y width height"),
        ("0 .5 .5 .5", "is not of the form: class x y width height"),
        (
            "0 .1 .1 .2 .1 .2 .2",
            "has 7 numbers; a box has 5, not an outline or points",
        ),
        ("0 20 10 5 5", "has a number outside 0 to 1"),
        ("2 .5 .5 .5 .5", "has a class that is not a whole number from 0 to 1"),
        ("1.0 .5 .5 .5 .5", "has a class that is not a whole number from 0 to 1"),
        ("1_0 .5 .5 .5 .5", "has a class that is not a whole number from 0 to 1"),
        ("0 .5 .5 0_1 .5", "is not of the form: class x y width height"),
        ("0 .5 .5 nan .5", "has a number outside 0 to 1"),
    ],
)
def test_a_wrong_line_is_refused(open_labels: Any, texts: Path, text: str, problem: str) -> None:
    (texts / "a.txt").write_text(text)
    with pytest.raises(SourceError, match=problem):
        open_labels({"yolo": "labels", "names": ["cat", "dog"]})


@pytest.mark.parametrize("label", ["-1", "1e300", "1152921504606846977", "1_0"])
def test_a_class_without_names_is_a_plain_number(
    open_labels: Any, texts: Path, parse: Parse, label: str
) -> None:
    (texts / "a.txt").write_bytes(b"\xef\xbb\xbf012 .5 .5 .5 .5")  # an editor's mark
    assert parse(open_labels({"yolo": "labels"}), 0)["label"].tolist() == [12]
    (texts / "a.txt").write_text(f"{label} .5 .5 .5 .5")
    with pytest.raises(SourceError, match="whole number from 0 to 999999999, as no names are giv"):
        open_labels({"yolo": "labels"})


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"yolo": "labels/in"}, "no picture of .* has a text file in .*, such as .*in/a.txt"),
        ({"yolo": "none"}, "no folder .* with text files"),
        ({"yolo": "labels", "names": ["a", "b", "a"]}, "has classes with one name: 'a'; correct"),
        ({"yolo": "labels", "names": "deep.yaml"}, "deep.yaml is not YAML: .*recursion"),
        ({"yolo": "labels", "names": "labels/a.txt"}, "has no names: a list"),
    ],
)
def test_labels_of_nothing_are_refused(
    open_labels: Any, texts: Path, labels: Any, problem: str
) -> None:
    with pytest.raises(SourceError, match=problem):
        open_labels(labels)
