"""The files that the pages speak of: data in `data/`, definitions, and the cursor of a run."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import numpy as np
from tests.harness.datasets import jpeg
from tests.harness.doc_blocks import ROOT
from tests.harness.pictures import encode
from tests.harness.tfrecords import example, write_records

PHOTOS = ["n01440764_10026.JPEG", *(f"{number:06}.jpg" for number in range(1599))]
"""An epoch has 50 steps of 32, so one begins at steps 300 and 4000, which the pages name."""
COUNT = 130
"""Samples of the other data sets: a batch or more."""
_REST = """
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_resized_crop: {field: image, size: [64, 64]}
      - random_flip_left_right: {field: image}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 32}
"""
DEFINITION = "pipelines:\n" + "".join(
    f"  {name}:\n    source: {{images: data/{data}, labels: data/{labels}.csv}}{_REST}"
    for name, data, labels in (
        ("photos", "photos", "labels"),
        *((name, "train", "train") for name in ("images", "pictures", "train")),
    )
)
"""`photos` with as many samples as the pages speak of, and pipelines with few."""


def fill(folder: Path) -> None:
    """Writes the files into a folder."""
    data = folder / "data"
    _write_images(data / "photos", PHOTOS)
    _write_images(data / "pairs", [f"images/{number}.jpg" for number in range(20)])
    _write_masks(data / "pairs/masks")
    _write_labels(data / "labels.csv", PHOTOS)
    breeds = [f"{name},{('beagle', 'boxer')[i % 2]}" for i, name in enumerate(PHOTOS)]
    (data / "table.csv").write_text("\n".join(["file,breed", *breeds]) + "\n")
    parts = [f"cats/{n}.jpg,{'good' if n % 10 else 'defect'}" for n in range(COUNT) if n != 20]
    (data / "parts.csv").write_text("\n".join(["file,label", *parts, "cats/blurred.jpg,good"]))
    for name in ("train", "eval", "more"):
        files = [f"cats/{number}.jpg" for number in range(COUNT)]
        files[20] = f"cats/{'blurred' if name == 'train' else 'sharp'}.jpg"
        _write_images(data / name, files)
        _write_labels(data / f"{name}.csv", files)
    _write_cars(data)
    _write_records(data)
    _write_tables(data)
    (folder / "pipelines.yaml").write_text(DEFINITION)
    (folder / "old.yaml").write_text(DEFINITION)
    (folder / "new.yaml").write_text(DEFINITION.replace("[64, 64]", "[48, 48]"))
    example_file = folder / "examples/folder_csv_labels.yaml"
    example_file.parent.mkdir()
    example_file.write_text((ROOT / "examples/folder_csv_labels.yaml").read_text())
    (folder / "examples/data").symlink_to("../data")
    (data / "pictures").symlink_to("photos")


def _write_images(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(jpeg(number % 50, (40 + number % 50, 34)))


def _write_masks(folder: Path) -> None:
    """Writes a mask of two classes for each of the images in `pairs/images`."""
    folder.mkdir()
    for number in range(20):
        mask = np.zeros((34, 40 + number), np.uint8)
        mask[8:24, 8:24] = 1
        (folder / f"{number}.png").write_bytes(encode("PNG", mask))


def _write_labels(file: Path, names: list[str]) -> None:
    rows = [f"{name},{number % 4}" for number, name in enumerate(names)]
    file.write_text("\n".join(["file,label", *rows]) + "\n")


def _write_cars(data: Path) -> None:
    """Writes images with boxes in COCO's JSON."""
    names = [f"{number}.jpg" for number in range(20)]
    _write_images(data / "cars", names)
    box = {"bbox": [2, 3, 10, 12], "category_id": 1, "area": 120, "iscrowd": 0}
    document = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(names)],
        "categories": [{"id": 1, "name": "car"}],
        "annotations": [{"id": n, "image_id": n, **box} for n in range(20)],
    }
    (data / "instances.json").write_text(json.dumps(document))


def _write_records(data: Path) -> None:
    images = [example({"image": [jpeg(n)], "label": [n % 4]}) for n in range(COUNT)]
    for shard in range(2):
        write_records(data / f"train-{shard:05}-of-00002.tfrecord", images[shard::2])
    (data / "gzip").mkdir()
    packed = gzip.compress((data / "train-00000-of-00002.tfrecord").read_bytes())
    (data / "gzip/train-0.tfrecord.gz").write_bytes(packed)
    texts = [
        example({"label": [n], "box": [0.0, 0.1, 0.5, 1.0], "tokens": [n]}) for n in range(COUNT)
    ]
    write_records(data / "a.tfrecord", texts)
    write_records(data / "b-0.tfrecord", texts)
    documents = [json.dumps({"text": f"document {n}: " + "words " * n}) for n in range(COUNT)]
    (data / "text").mkdir()
    (data / "text/documents.jsonl").write_text("\n".join(documents))
    lengths = 8 + np.arange(400) * 37 % 120
    tokens = np.where(np.arange(128) < lengths[:, np.newaxis], 7, 0)
    np.savez(data / "text/documents.npz", tokens=tokens, length=lengths)


def _write_tables(data: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), np.uint8)
    np.savez(data / "train.npz", image=images, label=np.arange(COUNT) % 10)
    if importlib.util.find_spec("pyarrow") is not None:
        _write_parquet(data / "train-0.parquet")
    if importlib.util.find_spec("array_record") is not None:
        _write_array_records(data)


def _write_parquet(file: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    images = [{"bytes": jpeg(n), "path": None} for n in range(COUNT)]
    boxes = pyarrow.array([[0, 0, 1, 1]] * COUNT, pyarrow.list_(pyarrow.float32()))
    table = pyarrow.table({"image": images, "label": [n % 4 for n in range(COUNT)], "box": boxes})
    pyarrow.parquet.write_table(table, file)


def _write_array_records(data: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(data / "train-0.array_record"), "group_size:1")
    for _ in range(COUNT):
        writer.write(example({"tokens": [*range(16)]}))
    writer.close()
