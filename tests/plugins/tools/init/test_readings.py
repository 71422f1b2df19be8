"""Readings of folders of images with the layouts of public data sets: right, or a question."""

from __future__ import annotations

import unicodedata

import pytest

from infeed_tools.init.listing import UnclearError
from infeed_tools.init.readings import Reading, Tree, choose
from infeed_tools.init.tables import Table

CAFE = "caf\u00e9"


def tree(*names: str, **tables: str) -> Tree:
    """Returns a tree: `a/b*3` are three images in `a/b`; a table's text is its CSV."""
    images = []
    for number, name in enumerate(names):
        path, _, count = name.partition("*")
        images += [f"{path}/{number}{n}.jpg" for n in range(int(count))] if count else [path]
    found = []
    for name, text in tables.items():
        rows = [line.split(",") for line in text.replace(" ", "\n").splitlines()]
        folder, _, base = name.replace("__", "/").rpartition("/")
        found.append(Table(f"{folder}/{base}.csv".lstrip("/"), rows, folder))
    return Tree("data", sorted(images), found)


def shown(reading: Reading) -> dict[str, str]:
    """Returns part → number of images, and the classes of their labels."""
    return {
        part.folder or ".": f"{len(part.images)} {','.join(sorted(part.names)) or '-'}"
        for part in reading.parts
    }


TAKEN: dict[str, tuple[Tree, dict[str, str]]] = {
    "class folders": (tree("cat*2", "dog*3"), {".": "5 cat,dog"}),
    "ASL alphabet": (
        Tree("data", ["A/A1.jpg", "A/A2.jpg", "B/B1.jpg", "B/B2.jpg"]),
        {".": "4 A,B"},
    ),
    "flat": (Tree("data", ["a.jpg", "b.jpg"]), {".": "2 -"}),
    "brain tumor": (
        tree("Training/glioma*2", "Training/none*2", "Testing/glioma*1", "Testing/none*1"),
        {"Testing": "2 glioma,none", "Training": "4 glioma,none"},
    ),
    "dogs and cats": (tree("train*4", "test1*2"), {"test1": "2 -", "train": "4 -"}),
    "tiny-imagenet": (
        tree("train/n0144/images*2", "train/n0162/images*2", "val/images*2", "test/images*2"),
        {"test": "2 -", "train": "4 n0144,n0162", "val": "2 -"},
    ),
    "COCO": (
        tree("train2017*2", "val2017*1", "test2017*1"),
        {"test2017": "1 -", "train2017": "2 -", "val2017": "1 -"},
    ),
    "Cassava": (
        tree("train_images*2", "test_images*1", train="image_id,label 00.jpg,3 01.jpg,1"),
        {"test_images": "1 -", "train_images": "2 1,3"},
    ),
    "CIFAR-10 in a wrapper": (
        tree(
            "cifar10/train/cat*2", "cifar10/train/dog*2", "cifar10/test/cat*1", "cifar10/test/dog*1"
        ),
        {"cifar10/test": "2 cat,dog", "cifar10/train": "4 cat,dog"},
    ),
    "Food-101, CUB-200": (tree("images/pie*2", "images/soup*2"), {"images": "4 pie,soup"}),
    "fruits-360": (
        tree(
            "Training/fig*2",
            "Training/kiwi*2",
            "Test/fig*1",
            "Test/kiwi*1",
            "test-multiple_fruits*2",
        ),
        {"Test": "2 fig,kiwi", "Training": "4 fig,kiwi", "test-multiple_fruits": "2 -"},
    ),
    "Unicode form of parts": (
        tree(
            f"train/{CAFE}*1",
            "train/the*2",
            f"val/{unicodedata.normalize('NFD', CAFE)}*1",
            "val/the*2",
        ),
        {"train": f"3 {CAFE},the", "val": f"3 {CAFE},the"},
    ),
    "a part with fewer classes": (
        tree("train/a*1", "train/b*2", "train/c*3", "val/c*2"),
        {"train": "6 a,b,c", "val": "2 c"},
    ),
    "metadata of Hugging Face": (
        tree(
            "train*2",
            "test*2",
            train__metadata="file_name,label 00.jpg,a 01.jpg,b",
            test__metadata="file_name,label 10.jpg,b 11.jpg,a",
        ),
        {"test": "2 a,b", "train": "2 a,b"},
    ),
    "GTSRB": (
        Tree(
            "data",
            [f"{c:05}/{c:05}_{n:05}.ppm" for c in range(2) for n in range(2 + c)],
            [Table("00000/GT.csv", [["Filename", "ClassId"], ["00000_00000.ppm", "0"]], "00000")],
        ),
        {".": "5 00000,00001"},
    ),
    "MNIST": (
        Tree("data", [f"{number % 3}/{number}.png" for number in range(9)]),
        {".": "9 0,1,2"},
    ),
    "classes numbered as one": (tree("3 cats*2", "12 dogs*2"), {".": "4 12 dogs,3 cats"}),
    "WIDER": (
        tree(
            *(f"WIDER_{part}/images/{event}*2" for part in ("train", "val") for event in "ab"),
            "WIDER_test/images*2",
        ),
        {"WIDER_test": "2 -", "WIDER_train/images": "4 a,b", "WIDER_val/images": "4 a,b"},
    ),
    "a single folder in one part": (
        tree("train/cat*2", "train/dog*2", "val/jpg/full/cat*2", "test/dog/x*2"),
        {"test": "2 dog", "train": "4 cat,dog", "val/jpg/full": "2 cat"},
    ),
}

ASKED: dict[str, Tree] = {
    "case of parts": tree("train/Cat*1", "train/Dog*2", "val/cat*2", "val/dog *1"),
    "a table of the class folders": tree(
        "cat*2",
        "dog*2",
        all="file,kind,size cat/00.jpg,cat,3 cat/01.jpg,CAT,2 dog/10.jpg,dog,1",
    ),
    "Intel scenes": tree(
        "seg_train/sea*1", "seg_train/ice*2", "seg_test/sea*1", "seg_test/ice*1", "seg_pred*2"
    ),
    "GTSRB of Kaggle": tree("Train/0*2", "Train/1*2", "Test*3", "Meta*2"),
    "samples beside parts": tree("train/a*2", "train/b*2", "test/a*1", "test/b*1", "samples*2"),
    "parts of a download": tree("images_001*2", "images_002*2"),
    "a part beside classes": tree("cat*2", "dog*2", "test*3"),
    "a table of class folders that says more": tree(
        "cat*2", "dog*2", l="file,label 00,1 01,2 10,1 11,2"
    ),
    "images and masks": Tree(
        "data", ["images/a.jpg", "images/b.jpg", "masks/a.png", "masks/b.png"]
    ),
    "dog breeds": tree("train*2", "test*2", labels="id,breed 00,pug 01,boxer"),
    "one-hot": tree("x*2", l="image,MEL,NV 00,1,0 01,0,1"),
    "FFHQ": Tree("ffhq", [f"{n // 3 * 1000:05}/{n // 3 * 997 + n:05}.png" for n in range(9)]),
    "files in tens": Tree("data", [f"{n // 2}/img_{n}.jpg" for n in range(24)]),
    "days": tree("2021-01-03*2", "2021-02-03*2", "20210204 Rome*1"),
    "nested classes beside images": tree("train*2", "train/x/cat*2", "train/x/dog*2", "val*2"),
    "classes of one name": tree("dog*2", "dog *1", "cat*1"),
    "parts without a common class": tree("train/a*2", "train/b*2", "val/c*2", "val/d*2"),
    "images beside class folders": tree("cat*2", "dog*1", "stray.jpg"),
    "chest X-ray twice": tree(
        "chest/train/a*2",
        "chest/train/b*2",
        "chest/val/a*1",
        "chest/val/b*1",
        "train/a*2",
        "train/b*2",
    ),
    # Public layouts for which no reading is certain.
    "PACS, DomainNet": tree("photo/dog*2", "photo/cat*1", "sketch/dog*2", "sketch/cat*1"),
    "HAM10000": tree("HAM_part_1*2", "HAM_part_2*2", m="image_id,dx 00,nv 01,mel 10,nv 11,bcc"),
    "Market-1501": tree("bounding_box_train*2", "bounding_box_test*2", "query*1", "gt_bbox*2"),
    "UCF-101 frames": tree("Archery/v1*2", "Archery/v2*2", "Bowling/v3*2"),
    "prefixes of pairs": Tree(
        "data", ["rgb/r00.jpg", "rgb/r01.jpg", "depth/d00.png", "depth/d01.png"]
    ),
    "ends of pairs": Tree(
        "data", [f"{n}.png" for s in ("0", "1", "x") for n in (f"images/{s}", f"masks/{s}_mask")]
    ),
    "a pair whose masks have their folder's name": Tree(
        "data", ["image/a.png", "image/b.png", "mask/a_mask.png", "mask/b_mask.png"]
    ),
    "class and part in one name": tree("cat_train*2", "cat_test*2", "dog_train*2", "dog_test*2"),
    "VOC": Tree("VOC", ["Seg/a.png", "Seg/b.png", "JPEG/a.jpg", "JPEG/b.jpg", "JPEG/c.jpg"]),
    "Cityscapes": tree(
        "leftImg8bit/train/bonn*2",
        "leftImg8bit/val/ulm*1",
        "gtFine/train/bonn*2",
        "gtFine/val/ulm*1",
    ),
    "ADE20K": tree(
        "images/training*2",
        "images/validation*1",
        "annotations/training*2",
        "annotations/validation*1",
    ),
    "Oxford Pets": Tree("pets", ["images/a_1.jpg", "images/b_1.jpg", "trimaps/a_1.png"]),
    "Places365": tree("data/a/airfield*2", "data/b/bar/indoor*2", "val_large*3"),
    "PlantVillage": tree("color/rust*2", "color/scab*2", "segmented/rust*2", "segmented/scab*2"),
    "MVTec": tree(
        "bottle/train/good*2",
        "bottle/test/good*1",
        "bottle/test/hole*1",
        "nut/train/good*2",
        "nut/test/good*1",
    ),
    "Imagenette": tree(
        "train/n1*2",
        "train/n2*2",
        "val/n1*1",
        "val/n2*1",
        noisy="path,noisy_labels 00.jpg,n2 01.jpg,n1 10.jpg,n2 11.jpg,n1",
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_layout_that_is_clear_is_taken(name: str) -> None:
    data, expected = TAKEN[name]
    assert shown(choose(data)) == expected


@pytest.mark.parametrize("name", ASKED)
def test_layout_that_is_not_clear_is_asked_for(name: str) -> None:
    data = ASKED[name]
    with pytest.raises(UnclearError) as caught:
        choose(data)
    for options, description in caught.value.choices:  # each choice works
        assert choose(data, **options).describe() == description
    assert len(caught.value.choices) > 1


@pytest.mark.parametrize("folders", [("",), ("a/x", "b/y")])
def test_masks_beside_their_images_are_asked_for(folders: tuple[str, ...]) -> None:
    ends = (".jpg", "_mask.png")
    images = [f"{folder}{number}{end}" for folder in folders for number in "0123" for end in ends]
    with pytest.raises(UnclearError, match=r"0_mask.png and others are named like an image") as e:
        choose(Tree("data", images))
    options, _ = e.value.choices[0]
    assert len(choose(Tree("data", images), **options).parts[0].images) == len(images)


def test_names_of_masks_that_differ_are_shown() -> None:
    with pytest.raises(UnclearError, match=r"like their images, such as 0.png, not 0_mask.png"):
        choose(ASKED["ends of pairs"])


def test_names_of_several_words_are_no_masks() -> None:
    assert choose(Tree("data", ["1.jpg", "1_new.jpg", "2.jpg", "new_york.jpg"])).label == "none"


def test_images_or_masks_alone_are_a_choice() -> None:
    with pytest.raises(UnclearError) as caught:
        choose(ASKED["images and masks"])
    *_, images, masks = [options for options, _ in caught.value.choices]
    assert images == {"parts": "images", "labels": "none"}
    assert masks == {"parts": "masks", "labels": "none"}
