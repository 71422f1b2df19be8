"""Boxes, categories and key points from COCO JSON, and files that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed import SampleError, SourceError

Parse = Callable[..., dict[str, Any]]


def coco(**changes: Any) -> dict[str, Any]:
    """Returns a small data set; a change replaces keys of its only annotation of `a.jpg`."""
    one = {"id": 1, "image_id": 7, "category_id": 30, "bbox": [4, 2, 10, 5]}
    return {
        "images": [
            {"id": 9, "file_name": "in/c.jpg", "width": 40, "height": 20},
            {"id": 7, "file_name": "a.jpg"},
            {"id": 8, "file_name": "b.jpg"},
        ],
        "categories": [{"id": 30, "name": "dog"}, {"id": 2, "name": "cat"}],
        "annotations": [
            {"id": 5, "image_id": 9, "category_id": 2, "bbox": [1, 2, 3, 4], "iscrowd": 1},
            {"id": 6, "image_id": 9, "category_id": 30, "bbox": [0.5, 0, 1, 1]},
            one | changes,
        ],
    }


SHARES = {"id": 1, "image_id": 7, "category_id": 2, "bbox": [0.1, 0.2, 0.5, 0.5]}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], str]:
    def write(content: Any) -> str:
        (tmp_path / "instances.json").write_text(json.dumps(content))
        return "instances.json"

    return write


def test_a_sample_has_its_annotations(open_labels: Any, written: Any, parse: Parse) -> None:
    source = open_labels({"coco": written(coco())})
    assert source.classes == {"label": ("cat", "dog")}
    first, bare, last = (parse(source, index) for index in range(3))
    assert first["boxes"].tolist() == [[4, 2, 14, 7]]
    assert first["label"].tolist() == [1]
    assert last["boxes"].tolist() == [[1, 2, 4, 6], [0.5, 0, 1.5, 1]]
    assert (last["label"].tolist(), last["iscrowd"].tolist()) == ([0, 1], [1, 0])
    assert bare["boxes"].shape == (0, 4)
    assert bare["label"].shape == (0,)


def test_key_points_are_rows_too(open_labels: Any, written: Any, parse: Parse) -> None:
    source = open_labels({"coco": written(coco(keypoints=[1, 2, 2, 0, 0, 0]))})
    assert parse(source, 0)["keypoints"].tolist() == [[[1, 2, 2], [0, 0, 0]]]
    assert parse(source, 2)["keypoints"].shape == (2, 2, 3)


def test_the_identity_has_every_annotation(open_labels: Any, written: Any) -> None:
    contents = (coco(), coco(), coco(bbox=[4, 2, 10, 6]), coco(category_id=2), coco(iscrowd=1))
    found = [open_labels({"coco": written(content)}).identity for content in contents]
    assert found[0] == found[1]
    assert len({*found}) == 4


def test_a_picture_that_is_not_named_is_a_bad_sample(open_labels: Any, written: Any) -> None:
    content = coco()
    del content["images"][2]
    source = open_labels({"coco": written(content)})
    with pytest.raises(SampleError, match=r"has no label: .*b.jpg is not in .*instances.json"):
        source.read(np.array([1]))


def test_a_picture_of_another_size_than_stated_is_refused(open_labels: Any, written: Any) -> None:
    content = coco()
    size = content["images"][0]
    size["width"], size["height"] = 20, 40  # turned by EXIF
    open_labels({"coco": written(content)})
    size["width"] = 50
    with pytest.raises(SourceError, match=r"states 50 x 40 for .*in/c.jpg, which has 40 x 20"):
        open_labels({"coco": written(content)})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"images": []}, "is not COCO JSON: it needs the lists annotations, categories, images"),
        (coco(image_id="7"), "annotation with the id 1: no image has its image_id '7'; .* like 9"),
        (coco(category_id=1), "id 1: no category has its category_id 1; their ids are like 2"),
        ({**coco(), "categories": []}, "id 5: no category has its category_id 2; there is none"),
        (coco(bbox=[10, 10, -20, 30]), r"id 1: its bbox \[10, 10, -20, 30\] has a width or height"),
        ({**coco(), "annotations": [SHARES]}, "no bbox goes beyond 1, as shares of the picture"),
        (coco(bbox=[1, 2, 3]), r"id 1: its bbox \[1, 2, 3\] is not \[x, y, width, height"),
        (coco(keypoints=[1, 2]), r"key points of \[2\] numbers"),
        (
            {**coco(), "images": [*coco()["images"], {"id": 1, "file_name": "d.jpg"}]},
            "names 1 of 4 pictures that are not in .*: 'd.jpg'; the pictures there are named like",
        ),
    ],
)
def test_a_wrong_file_is_refused(
    open_labels: Any, written: Any, content: Any, problem: str
) -> None:
    with pytest.raises(SourceError, match=problem):
        open_labels({"coco": written(content)})


def test_what_comes_twice_or_has_no_area_is_shown(
    open_labels: Any, written: Any, parse: Parse, caplog: pytest.LogCaptureFixture
) -> None:
    content = coco(bbox=[4, 2, 0, 5])
    content["annotations"] += [content["annotations"][0]]
    content["images"] += [{"id": 10, "file_name": "b.jpg"}]
    source = open_labels({"coco": written(content)})
    assert parse(source, 0)["boxes"].shape == (0, 4)
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first.endswith("instances.json: left out: 1 boxes without an area: 1")
    assert "1 times the id of an annotation of another" in second
    assert "1 times the file_name of another, so that a box may come twice: b.jpg" in third


def test_what_is_no_json_is_refused(open_labels: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(SourceError, match=r"x.json is no JSON"):
        open_labels({"coco": "x.json"})
