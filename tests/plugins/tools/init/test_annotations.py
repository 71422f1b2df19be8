"""Drafts for images with boxes and masks: COCO, YOLO and folders of masks, and questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.harness.starters import drafts, names

from infeed.shared.errors import SourceError
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import open_source
from infeed_tools.init.draft import Draft
from infeed_tools.init.listing import UnclearError


def write_photos(folder: Path, *paths: str) -> None:
    for number, path in enumerate(paths):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (150, 200, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / path)


def write_coco(path: Path, *images: str, points: bool = False, named: Any = None) -> None:
    """Writes a JSON with n boxes for image n; `named` are the names of points."""
    path.parent.mkdir(exist_ok=True)
    extra = {"keypoints": [5, 5, 2, 6, 6, 1]} if points else {}
    content = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(images)],
        "categories": [{"id": 3, "name": "cat"}, {"id": 5, "name": "dog", "keypoints": named}],
        "annotations": [
            {"id": 1, "image_id": number, "category_id": 5, "bbox": [1, 2, 30, 40], **extra}
            for number in range(len(images))
            for _ in range(number)
        ],
    }
    path.write_text(json.dumps(content))


def serve(draft: Draft, folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the fields of the drafted pipeline."""
    definition = parse(draft.definition()).resolve(folder)
    with_batch = definition.model_copy(
        update={"batch": definition.batch and definition.batch.model_copy(update={"size": 1})}
    )
    plan = plan_indexed("p", with_batch, open_source(definition.source))
    return {field.name: field.shape for field in plan.spec.element_spec}


def test_coco_with_two_parts(tmp_path: Path) -> None:
    data = tmp_path / "coco"
    write_photos(data, "train2017/a.jpg", "train2017/b.jpg", "train2017/c.jpg", "val2017/d.jpg")
    write_coco(data / "annotations/instances_train2017.json", "a.jpg", "b.jpg", "c.jpg")
    write_coco(data / "annotations/instances_val2017.json", "d.jpg")
    (data / "annotations/captions_val2017.json").write_text('{"images": [], "annotations": []}')
    train, val = drafts(data).values()
    assert (train.name, train.samples, train.classes) == ("coco-train2017", 3, ("cat", "dog"))
    assert names(train.definition()) == [
        *("decode_image", "resize", "random_flip_left_right", "normalize")
    ]
    assert names(val.definition()) == ["decode_image", "resize", "normalize"]
    labels = {"coco": "coco/annotations/instances_train2017.json"}
    assert train.source == {"images": "coco/train2017", "labels": labels}
    assert serve(train, tmp_path) == {
        "image": (128, 128, 3),
        "boxes": (2, 4),
        **dict.fromkeys(("label", "iscrowd"), (2,)),
        "boxes_count": (),
    }
    assert val.targets == train.targets


@pytest.mark.parametrize(
    ("points", "pairs"),
    [
        (["left_eye", "right_eye"], [[0, 1]]),
        (["RightEye2", "LeftEye2"], [[0, 1]]),
        (["left_eye", "nose"], []),
        (["top", "bright"], []),
        (None, []),
    ],
)
def test_key_points_are_mirrored_by_their_names(tmp_path: Path, points: Any, pairs: Any) -> None:
    data = tmp_path / "photos"
    write_photos(data, "a.jpg", "b.jpg")
    write_coco(data / "instances.json", "a.jpg", "b.jpg", points=True, named=points)
    (draft,) = drafts(data).values()
    is_flipped = "random_flip_left_right" in names(draft.definition())
    assert (draft.fields["keypoints"], is_flipped) == ("[n, 2, 3]", bool(pairs))
    assert bool(pairs) != any("no random_flip_left_right" in note for note in draft.all_notes())
    expected = {"keypoints": {"pairs": pairs}} if pairs else "keypoints"
    assert draft.targets["keypoints"] == expected
    serve(draft, tmp_path)


def test_parts_in_one_folder_have_the_pictures_of_their_jsons(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "photos"
    write_photos(data, "images/a.jpg", "images/b # 2.jpg", "images/c.jpg")
    write_coco(data / "annotations/train.json", "a.jpg", "b # 2.jpg")
    write_coco(data / "annotations/val.json", "c.jpg")
    train, val = drafts(data).values()
    assert (train.name, train.samples) == ("photos-train", 2)
    assert (val.name, val.samples) == ("photos-val", 1)
    listed = 'images/a.jpg\n"images/b # 2.jpg"\n'
    assert val.files == {"photos-val-without-label.infeed.txt": listed}
    assert val.definition()["remove"] == {"samples": next(iter(val.files)), "then": "shrink"}
    assert not caplog.text  # the note of the draft says it
    (tmp_path / next(iter(val.files))).write_text(listed)
    assert serve(val, tmp_path)["boxes"] == (1, 4)


def test_two_jsons_of_one_folder_are_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "photos"
    write_photos(data, "a.jpg", "b.jpg")
    write_coco(tmp_path / "annotations/instances.json", "a.jpg", "b.jpg")
    write_coco(tmp_path / "annotations/person_keypoints.json", "a.jpg", "b.jpg", points=True)
    with pytest.raises(UnclearError, match="has several kinds of labels") as caught:
        drafts(data)
    options = [option["labels"] for option, _ in caught.value.choices]
    assert [Path(option).name for option in options] == ["instances.json", "person_keypoints.json"]
    (draft,) = drafts(data, labels=options[1]).values()
    assert serve(draft, tmp_path)["keypoints"] == (1, 2, 3)


def test_a_json_that_names_other_pictures_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "photos"
    write_photos(data, "cat/a.jpg", "dog/b.jpg")
    write_coco(data / "instances.json", "a.jpg", "gone.jpg")
    (draft,) = drafts(data).values()
    assert draft.source["labels"] == "folders"
    assert "instances.json looks like COCO, but its pictures" in caplog.text
    write_photos(data := tmp_path / "other", "a.jpg")
    write_coco(data / "instances.json", "/elsewhere/a.jpg")
    with pytest.raises(UnclearError, match=r"other: .* looks like COCO, .*; choose") as caught:
        drafts(data)
    (choice,) = caught.value.choices
    assert choice == ({"labels": "none"}, "no label")
    assert "labels" not in next(iter(drafts(data, labels="none").values())).source


def test_whole_paths_in_a_json_are_of_the_folder(tmp_path: Path) -> None:
    data = tmp_path / "photos"
    write_photos(data, "images/a.jpg", "images/b.jpg")
    write_coco(data / "a.json", *(str(data / f"images/{name}.jpg") for name in "ab"))
    (draft,) = drafts(data).values()
    assert draft.source == {"images": "photos/images", "labels": {"coco": "photos/a.json"}}
    assert serve(draft, tmp_path)["boxes"] == (1, 4)


def test_class_folders_beside_boxes_are_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "photos"
    write_photos(data, "cat/a.jpg", "cat/b.jpg", "dog/c.jpg", "dog/d.jpg")
    write_coco(data / "instances.json", "cat/a.jpg", "cat/b.jpg", "dog/c.jpg", "dog/d.jpg")
    with pytest.raises(UnclearError, match="has several kinds of labels") as caught:
        drafts(data)
    assert [option["labels"] for option, _ in caught.value.choices][1:] == ["folders"]
    (draft,) = drafts(data, labels="folders").values()
    assert draft.source["labels"] == "folders"


@pytest.mark.parametrize(
    ("size", "exif", "note"),
    [
        ((200, 150), "ignore", "the sizes of the photos as they are stored"),
        ((150, 200), "apply", "the sizes of the photos as EXIF turns them"),
        ((0, 0), "apply", "the labels do not tell whether they fit them as turned or as stored"),
    ],
)
def test_photos_turn_as_their_labels_have_them(
    tmp_path: Path, size: Any, exif: str, note: str
) -> None:
    data = tmp_path / "photos"
    turned = Image.Exif()
    turned[0x0112] = 6
    write_photos(data, "a.jpg", "b.jpg")
    Image.open(data / "b.jpg").save(data / "b.jpg", exif=turned)
    write_coco(data / "instances.json", "a.jpg", "b.jpg")
    content = json.loads((data / "instances.json").read_text())
    content["images"][1] |= {"width": size[0], "height": size[1]}
    (data / "instances.json").write_text(json.dumps(content))
    (draft,) = drafts(data).values()
    assert draft.transforms[0]["decode_image"]["exif"] == exif
    assert note in "".join(draft.all_notes())
    serve(draft, tmp_path)


@pytest.mark.parametrize("layout", ["{kind}/{part}/{name}", "{part}/{kind}/{name}"])
def test_yolo(tmp_path: Path, layout: str) -> None:
    data = tmp_path / "yolo"
    for part, name in (("train", "a"), ("train", "b"), ("val", "c")):
        write_photos(data, layout.format(kind="images", part=part, name=f"{name}.jpg"))
        text = data / layout.format(kind="labels", part=part, name=f"{name}.txt")
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text("1 0.5 0.5 0.5 0.5\n0 0.5 0.5 0.25 0.25\n")
    (data / "data.yaml").write_text("names: [cat, dog]\nnc: 2\n")
    train, val = drafts(data).values()
    assert (train.name, val.name) == ("yolo-train", "yolo-val")
    assert train.classes == ("cat", "dog")
    assert train.targets["boxes"]["boxes"] == {
        "format": "xyxy",
        "normalized": True,
        "with": ["label"],
        "pad": 2,
    }
    assert serve(train, tmp_path)["boxes"] == (2, 4)


def test_empty_texts_of_yolo_are_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "yolo"
    write_photos(data, "images/a.jpg", "images/b.jpg")
    (data / "labels").mkdir()
    for name in "ab":
        (data / f"labels/{name}.txt").write_text("\n")
    with pytest.raises(UnclearError, match=r"named as images are empty, .*; choose one") as caught:
        drafts(data)
    assert [choice["labels"] for choice, _ in caught.value.choices] == ["yolo", "none"]
    (draft,) = drafts(data, labels="yolo").values()
    assert serve(draft, tmp_path)["boxes"] == (1, 4)
    (data / "labels/b.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    (draft,) = drafts(data).values()
    assert draft.source["labels"] == {"yolo": "yolo/labels"}


@pytest.mark.parametrize("text", ["cat\ndog\n", ""])
def test_classes_of_yolo_without_a_yaml(tmp_path: Path, text: str) -> None:
    data = tmp_path / "yolo"
    write_photos(data, "images/a.jpg")
    (data / "labels").mkdir()
    (data / "labels/a.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    (data / "labels/classes.txt").write_text(text)
    (draft,) = drafts(data).values()
    assert draft.classes == (("cat", "dog") if text else ())
    assert bool(text) != any("numbers without names" in note for note in draft.all_notes())


@pytest.mark.parametrize("names", [("images", "masks"), ("JPEGImages", "SegmentationClass")])
def test_masks(tmp_path: Path, names: Any) -> None:
    data = tmp_path / "pets"
    for name in ("a", "b"):
        write_photos(data, f"{names[0]}/{name}.jpg")
        (data / names[1]).mkdir(exist_ok=True)
        mask = Image.fromarray((np.arange(30000).reshape(150, 200) % 3).astype(np.uint8))
        mask.save(data / names[1] / f"{name}.png")
    (draft,) = drafts(data).values()
    assert draft.source["labels"] == {"masks": f"pets/{names[1]}"}
    assert not [*draft.all_notes()]
    assert draft.fields["mask"] == "PNG of classes, values of 2 masks: 0, 1, 2"
    assert serve(draft, tmp_path) == {"image": (128, 128, 3), "mask": (128, 128, 1)}


def test_photos_of_a_pair_are_no_masks(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_photos(tmp_path / "stereo", f"left/{name}.png", f"right/{name}.png")
    with pytest.raises(UnclearError, match="have the same names or numbers"):
        drafts(tmp_path / "stereo")


def test_masks_with_other_names_are_to_be_named_like_the_photos(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_photos(tmp_path / "pets", f"annot/{name}_mask.png", f"photos/{name}.jpg")
    with pytest.raises(UnclearError, match=r"like their images, such as a.png, not a_mask.png"):
        drafts(tmp_path / "pets")


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ("masks", "--labels masks: no folder of .* has 8-bit PNGs with few greys"),
        ("yolo", "--labels yolo: no folder of .* has text files of lines"),
        ("stereo/instance.json", "no such file .did you mean 'instances.json'.*, a COCO JSON, or"),
    ],
)
def test_annotations_that_are_not_there_are_refused(
    tmp_path: Path, labels: str, problem: str
) -> None:
    for name in ("a", "b"):
        write_photos(tmp_path / "stereo", f"left/{name}.png", f"right/{name}.png")
    write_coco(tmp_path / "stereo/instances.json", "left/a.png")
    path = str(tmp_path / labels) if "/" in labels else labels
    with pytest.raises(SourceError, match=problem):
        drafts(tmp_path / "stereo", labels=path)
