"""Boxes, categories and key points from COCO JSON, and files that are wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

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


def write_turned(path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.new("RGB", (40, 20)).save(path, exif=exif)


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
    assert [labels.tolist() for labels in source.whole_field("label")] == [[1], [], [0, 1]]
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


def test_a_picture_of_another_size_than_stated_is_refused(
    open_labels: Any, written: Any, pictures: Path
) -> None:
    content = coco()
    size = content["images"][0]
    size["width"], size["height"] = 20, 40
    write_turned(pictures / "in/c.jpg", 1)
    with pytest.raises(SourceError, match=r"states 20 x 40 for .*in/c.jpg, which is 40 x 20"):
        open_labels({"coco": written(content)})
    write_turned(pictures / "in/c.jpg", 6)
    assert open_labels({"coco": written(content)}).exif == "apply"
    del size["width"]
    assert open_labels({"coco": written(content)}).exif == "unclear"
    write_turned(pictures / "in/c.jpg", 1)
    size["width"], size["height"] = 40, 20
    write_turned(pictures / "a.jpg", 6)  # without a stated size, beside one that has it
    assert open_labels({"coco": written(content)}).exif == "unclear"


def test_boxes_of_a_turned_photo_tell_whether_its_size_is_exchanged(
    open_labels: Any, written: Any, pictures: Path
) -> None:
    content = coco()
    write_turned(pictures / "in/c.jpg", 6)  # 40 x 20 pixels are stored
    one = content["annotations"][0]
    for width, height, fits, refused in (
        (40, 20, [30, 5, 9, 4], [5, 30, 4, 9]),
        (20, 40, [5, 30, 4, 9], [30, 5, 9, 4]),
    ):
        content["images"][0] |= {"width": width, "height": height}
        content["annotations"] = [one | {"id": n, "bbox": refused} for n in range(3)]
        with pytest.raises(SourceError, match=r"3 boxes .* only as they are: in/c.jpg; exchange"):
            open_labels({"coco": written(content)})
        content["annotations"].append(one | {"id": 9, "bbox": fits})
        open_labels({"coco": written(content)})
        content["annotations"] = content["annotations"][:2]  # few may be drawn carelessly
        open_labels({"coco": written(content)})


@pytest.mark.parametrize("is_stated", [True, False])
def test_boxes_beyond_their_pictures_are_counted(
    open_labels: Any, written: Any, caplog: pytest.LogCaptureFixture, is_stated: bool
) -> None:
    content = coco(bbox=[20, 10, 20.9, 10])  # a part of a pixel beyond
    if not is_stated:
        del content["images"][0]["width"]
    open_labels({"coco": written(content)})
    assert not caplog.text
    content["annotations"][0]["bbox"] = [30, 5, 38, 15]
    open_labels({"coco": written(content)})
    assert (
        "1 of 3 boxes extend beyond their pictures by over a pixel, in annotations with the ids 5"
        in caplog.text
    )
    caplog.clear()
    content["annotations"][0]["bbox"] = [-0.9, 5, 8, 5]
    open_labels({"coco": written(content)})
    assert not caplog.text
    content["annotations"][0]["bbox"] = [5, -3, 8, 5]
    open_labels({"coco": written(content)})
    assert (
        "1 of 3 boxes extend beyond their pictures by over a pixel, in annotations with the ids 5"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"images": []}, "is not COCO JSON: it needs the lists annotations, categories, images"),
        (coco(image_id="7"), r"annotations\[2\], id 1: no image has its image_id '7'; .* like 9"),
        (coco(category_id=1), "id 1: no category has its category_id 1; ids look like 2"),
        (
            {**coco(), "categories": []},
            "id 5: no category has its category_id 2; the file has none",
        ),
        (
            coco(bbox=[10, 10, -20, 30]),
            r"id 1: its bbox \[10.0, 10.0, -20.0, 30.0\] has a negative width",
        ),
        ({**coco(), "annotations": [SHARES]}, "no bbox exceeds 1, so they look like shares"),
        (
            coco(bbox=[1, 2, 3]),
            r"annotations\[2\].bbox: .* at least 4 items.*; a bbox is \[x, y, w",
        ),
        (coco(keypoints=[1, 2]), r"keypoints have \[2\] numbers"),
        (
            {**coco(), "images": [*coco()["images"], {"id": 1, "file_name": "d.jpg"}]},
            ": 1 of its 4 pictures are not in .*: 'd.jpg'; the names there look like",
        ),
    ],
)
def test_a_wrong_file_is_refused(
    open_labels: Any, written: Any, content: Any, problem: str
) -> None:
    with pytest.raises(SourceError, match=problem):
        open_labels({"coco": written(content)})


@pytest.mark.parametrize(
    ("changes", "place", "value"),
    [
        ({"bbox": [1, 2, 1e39, 3]}, "bbox[2]: should be less than or equal to", "1e+39"),
        ({"bbox": [1, 2, 10**400, 3]}, "bbox[2]: should be", "1000"),
        ({"bbox": [1, 2, 3, float("nan")]}, "bbox[3]: should be a finite number", "nan"),
        ({"bbox": None}, "bbox: should be a valid list", "null; a bbox is [x"),
        ({"iscrowd": 1.5}, "iscrowd: should be a valid integer", "1.5"),
        ({"iscrowd": None}, "iscrowd: should be a valid integer", "null"),
        ({"iscrowd": 2**70}, "iscrowd: should be less than or equal to 1", str(2**70)),
        ({"keypoints": [1, None, 2]}, "keypoints[1]: should be a valid number", "null"),
        ({"keypoints": "abc"}, "keypoints: should be a valid list", "'abc'"),
        ({"image_id": [7]}, "image_id: should be a valid integer", "[7]"),
        ({"category_id": {}}, "category_id: should be a valid integer", "{}"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_place(
    open_labels: Any, written: Any, changes: Any, place: str, value: str
) -> None:
    with pytest.raises(SourceError) as caught:
        open_labels({"coco": written(coco(**changes))})
    assert f"instances.json: annotations[2].{place}" in str(caught.value)
    assert f", not {value}" in str(caught.value)


@pytest.mark.parametrize(
    ("items", "added", "problem"),
    [
        ("categories", {"id": "x", "name": "x"}, "categories[2].id: should be a valid integer, .*"),
        ("categories", {"id": 3}, "categories[2].name: missing"),
        ("categories", {"id": 30, "name": "x"}, "has categories with one id: 30; correct them"),
        ("categories", {"id": 3, "name": "dog"}, "has categories with one name: 'dog'"),
        ("images", {"id": 7, "file_name": "b.jpg"}, "has images with one id: 7"),
        ("images", {"id": 1, "file_name": None}, "images[3].file_name: should be a valid string"),
        ("images", "b.jpg", "images[3]: should be a valid mapping, not 'b.jpg'"),
    ],
)  # fmt: skip
def test_a_wrong_or_repeated_item_is_refused(
    open_labels: Any, written: Any, items: str, added: Any, problem: str
) -> None:
    content = coco()
    content[items] = [*content[items], added]
    with pytest.raises(SourceError, match=re.escape(problem).replace(r"\.\*", ".*")):
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
    assert first.endswith("instances.json: skipped 1 boxes without an area: 1")
    assert "the id of an annotation repeats 1 times" in second
    assert "the file_name repeats 1 times, so boxes may be duplicates: b.jpg" in third


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_what_is_no_json_is_refused(open_labels: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SourceError, match=r"x.json is not JSON"):
        open_labels({"coco": "x.json"})
