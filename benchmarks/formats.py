"""The same photos in several formats, read as bytes or decoded and resized, beside TFRecord."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
import time
from itertools import count
from pathlib import Path

from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target
from benchmarks.photos import PATTERN, photo_folder
from tests.harness.mds import write_mds
from tests.harness.saved import write_saved
from tests.harness.server import InfeedServer
from tests.harness.spawned import python_module

import infeed

PEER = "tfrecord"

SOURCES = {
    PEER: "tfrecord: {folder}/tfrecord/*.tfrecord, features: {{image: bytes}}",
    "images": "images: {photos}",
    "arrayrecord": "arrayrecord: {folder}/arrayrecord/*.arrayrecord, features: {{image: bytes}}",
    "webdataset": "webdataset: {folder}/webdataset/*.tar, fields: {{image: jpg}}",
    "parquet": "parquet: {folder}/photos.parquet",
    "huggingface": "huggingface: {folder}/huggingface",
    "mds": "mds: {folder}/mds",
}

TARGETS = {name: Target(0.9) for name in ("webdataset", "mds", "huggingface")}
"""Formats that, like TFRecord, are read by byte ranges or mapped."""

TRANSFORMS = {
    "raw": "[]",
    "decoded": "[{decode_image: {field: image, channels: 3}}, "
    "{resize: {field: image, size: [224, 224]}}]",
}

PIPELINE = """
  {name}-{kind}:
    source: {{{source}}}
    shuffle: {{seed: 1}}
    transforms: {transforms}
    batch: {{size: 64}}
"""

WARM_UP_BATCHES = 8
"""Uncounted batches of each run: more than the server makes ahead."""

ROWS = 16
"""Rows of a row group, and of a record batch."""


def compare(plan: Plan) -> list[Finding]:
    """Reads each format in turn; the files stay in the page cache."""
    rates: dict[tuple[str, str], list[float]] = {}
    seeds = count(1)  # so that no batch was made for another feed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        definition = _write(folder)
        with InfeedServer(definition, folder / "log") as server:
            for _ in range(plan.pairs + 1):
                for kind in TRANSFORMS:
                    for source in SOURCES:
                        seed, pipeline = next(seeds), f"{source}-{kind}"
                        rate = images_per_second(server.address, pipeline, seed, plan.seconds)
                        rates.setdefault((source, kind), []).append(rate)
    return [
        Finding(
            f"images/s, {kind}",
            Figures(source, rates[source, kind][1:]),
            Figures(PEER, rates[PEER, kind][1:]),
            TARGETS.get(source),
        )
        for kind in TRANSFORMS
        for source in SOURCES
        if source != PEER
    ]


def _write(folder: Path) -> Path:
    """Writes every format, and the pipelines of all."""
    photos = photo_folder()
    definition = folder / "pipelines.yaml"
    definition.write_text(
        "pipelines:"
        + "".join(
            PIPELINE.format(
                name=name,
                kind=kind,
                source=source.format(folder=folder, photos=photos),
                transforms=transforms,
            )
            for name, source in SOURCES.items()
            for kind, transforms in TRANSFORMS.items()
        )
    )
    files = sorted(photos.glob(PATTERN))
    arguments = ("pack", str(definition), str(folder / PEER), "--pipeline", "images-raw")
    subprocess.run(python_module("infeed", *arguments), check=True, capture_output=True)
    _write_array_records(files, folder / "arrayrecord")
    _write_tar(files, folder / "webdataset")
    _write_arrow(files, folder)
    _write_mds(files, folder / "mds")
    return definition


def _write_array_records(files: list[Path], folder: Path) -> None:
    """Writes records in groups of one, so that each is read alone."""
    import tensorflow as tf
    from array_record.python.array_record_module import ArrayRecordWriter

    folder.mkdir()
    writer = ArrayRecordWriter(f"{folder}/photos.arrayrecord", "group_size:1,uncompressed")
    for file in files:
        image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.read_bytes()]))
        features = tf.train.Features(feature={"image": image})
        writer.write(tf.train.Example(features=features).SerializeToString())
    writer.close()


def _write_tar(files: list[Path], folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(folder / "photos.tar", "w") as tar:
        for number, file in enumerate(files):
            tar.add(file, f"{number:09}.jpg")


def _write_arrow(files: list[Path], folder: Path) -> None:
    """Writes a Parquet file, and a data set as `save_to_disk` of Hugging Face does."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"image": [file.read_bytes() for file in files]})
    pyarrow.parquet.write_table(table, folder / "photos.parquet", row_group_size=ROWS)
    features = {"image": {"_type": "Value", "dtype": "binary"}}
    write_saved(folder / "huggingface", table, features, batch=ROWS)


def _write_mds(files: list[Path], folder: Path) -> None:
    samples = [{"image": file.read_bytes()} for file in files]
    write_mds(folder, {"image": ("jpeg", None)}, [samples])


def images_per_second(address: str, pipeline: str, seed: int, seconds: float) -> float:
    with infeed.connect(address, pipeline, seed=seed) as feed:
        for _ in range(WARM_UP_BATCHES):
            next(feed)
        images, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            images += len(next(feed).sample_ids)
        return images / passed
