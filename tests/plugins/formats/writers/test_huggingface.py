"""Data sets that the package `datasets` saves, read by the sources `huggingface` and `parquet`."""

from __future__ import annotations

import json
from pathlib import Path

import tensorflow as tf
from tests.harness.samples import parse
from tests.harness.writers import needs_writers, run_writer

from infeed_formats.arrow.huggingface import HuggingFaceSource
from infeed_formats.arrow.parquet import ParquetSource
from infeed_formats.arrow.tables import TableReader

pytestmark = needs_writers

PROGRAM = """
import io, sys
import datasets, numpy
from PIL import Image

def photo(n):
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (n, 0, 0)).save(out, "PNG")
    return {"bytes": out.getvalue(), "path": None}

features = datasets.Features({
    "image": datasets.Image(),
    "labels": datasets.ClassLabel(names=["healthy", "rust"]),
    "text": datasets.Value("string"),
    "tokens": datasets.Sequence(datasets.Value("int32")),
    "box": datasets.Sequence(datasets.Value("float32"), length=4),
    "grid": datasets.Array2D((2, 3), "int64"),
})
rows = {
    "image": [photo(n) for n in range(25)],
    "labels": [n % 2 for n in range(25)],
    "text": [f"text {n}" for n in range(25)],
    "tokens": [[n] * (n % 3) for n in range(25)],
    "box": [[n, 1, 2, 3] for n in range(25)],
    "grid": [[[n, 1, 2], [3, 4, 5]] for n in range(25)],
}
data = datasets.Dataset.from_dict(rows, features=features)
chosen = data.select([7, 3, 24])
both = datasets.DatasetDict({"train": data, "test": chosen})
both.save_to_disk(sys.argv[1], num_shards={"train": 2, "test": 1})
data.cast_column("image", datasets.Image(decode=False)).to_parquet(sys.argv[1] + "/all.parquet")
"""


def open_source(folder: Path) -> TableReader:
    return HuggingFaceSource(huggingface=str(folder)).open()


def test_what_the_package_datasets_saves(tmp_path: Path) -> None:
    folder = tmp_path / "beans"
    run_writer("-c", PROGRAM, folder)
    train, test = open_source(folder / "train"), open_source(folder / "test")
    assert (len(train), len(test)) == (25, 3)
    assert train.classes["labels"] == ("healthy", "rust")
    assert json.loads((folder / "train" / "state.json").read_text())["_fingerprint"]
    for source, row, number in ((train, 24, 24), (train, 0, 0), (test, 0, 7), (test, 1, 3)):
        sample = parse(source, row)
        pixels = tf.io.decode_png(sample["image"]).numpy()
        assert pixels.shape == (8, 8, 3)
        assert set(pixels[..., 0].flat) == {number}
        assert sample["labels"] == number % 2
        assert sample["text"] == f"text {number}".encode()
        assert sample["tokens"].tolist() == [number] * (number % 3)
        assert sample["box"].tolist() == [number, 1, 2, 3]
        assert sample["grid"].tolist() == [[number, 1, 2], [3, 4, 5]]
    table = ParquetSource(
        parquet=str(folder / "all.parquet"), columns=("image.bytes", "labels", "tokens")
    ).open()
    for row in (0, 24):
        sample, other = parse(table, row), parse(train, row)
        assert sample["image.bytes"] == other["image"]
        assert sample["tokens"].tolist() == other["tokens"].tolist()
        assert sample["labels"] == other["labels"]
