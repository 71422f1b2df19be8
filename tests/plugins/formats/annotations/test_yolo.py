"""Boxes from YOLO text files, and lines that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed import SourceError

Parse = Callable[..., dict[str, Any]]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "labels"
    (folder / "in").mkdir(parents=True)
    (folder / "a.txt").write_text("1 0.5 0.5 0.5 0.25\r\n\n0 0.25 0.5 0.5 1\n")
    (folder / "in/c.txt").write_text("")
    (tmp_path / "data.yaml").write_text("names: {0: cat, 1: dog}")
    return folder


def test_a_sample_has_the_boxes_of_its_file(open_labels: Any, texts: Path, parse: Parse) -> None:
    source = open_labels({"yolo": "labels", "names": "data.yaml"})
    assert source.classes == {"label": ("cat", "dog")}
    first = parse(source, 0)
    np.testing.assert_allclose(first["boxes"], [[0.25, 0.375, 0.75, 0.625], [0, 0, 0.5, 1]])
    assert first["label"].tolist() == [1, 0]
    assert [len(parse(source, index)["boxes"]) for index in (1, 2)] == [0, 0]
    assert not open_labels({"yolo": "labels"}).classes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cat 1 2 3 4", "a.txt, line 1: 'cat 1 2 3 4' is not: class x y width height"),
        ("0 .5 .5 .5", "is not: class x y width height"),
        ("0 .1 .1 .2 .1 .2 .2", "has 7 numbers; a box has 5, and outlines and points are not read"),
        ("0 20 10 5 5", "has a number that is no share of the picture, from 0 to 1"),
        ("2 .5 .5 .5 .5", "has the class 2, and there are 2: 0 to 1"),
    ],
)
def test_a_wrong_line_is_refused(open_labels: Any, texts: Path, text: str, problem: str) -> None:
    (texts / "a.txt").write_text(text)
    with pytest.raises(SourceError, match=problem):
        open_labels({"yolo": "labels", "names": ["cat", "dog"]})


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"yolo": "labels/in"}, "no picture of .* has a text file in .*, such as .*in/a.txt"),
        ({"yolo": "none"}, "no folder .* of text files"),
        ({"yolo": "labels", "names": "labels/a.txt"}, "has no names, a list of the classes"),
    ],
)
def test_labels_of_nothing_are_refused(
    open_labels: Any, texts: Path, labels: Any, problem: str
) -> None:
    with pytest.raises(SourceError, match=problem):
        open_labels(labels)
