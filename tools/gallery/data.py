"""The data of the gallery: images that the demo draws, in the formats of the pipelines."""

from __future__ import annotations

import io
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image
from tests.harness.tfrecords import example, write_records

from infeed_tools.demo.shapes import write_images

COUNT = 400
"""Images of each data set."""


@cache
def images() -> list[tuple[str, bytes]]:
    """Returns the class and the JPEG of each image."""
    with tempfile.TemporaryDirectory() as folder:
        files = [*write_images(Path(folder), COUNT, seed=0)]
        return [(file.parent.name, file.read_bytes()) for file in files]


def labels() -> list[int]:
    classes = sorted({name for name, _ in images()})
    return [classes.index(name) for name, _ in images()]


def pixels(size: int) -> np.ndarray:
    """Returns the images resized: uint8[COUNT, size, size, 3]."""
    opened = (Image.open(io.BytesIO(content)) for _, content in images())
    return np.stack([np.asarray(image.resize((size, size))) for image in opened])


def write_nothing(folder: Path) -> None:
    """Writes nothing: code makes the samples."""


def write_folders(folder: Path) -> None:
    for number, (name, content) in enumerate(images()):
        file = folder / "pictures" / name / f"{number:03}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def write_csv(folder: Path) -> None:
    (folder / "pictures").mkdir()
    rows = ["file,label"]
    for number, ((_, content), label) in enumerate(zip(images(), labels(), strict=True)):
        (folder / "pictures" / f"{number:03}.jpg").write_bytes(content)
        rows.append(f"{number:03}.jpg,{label}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")


def write_flat(folder: Path) -> None:
    for number, (_, content) in enumerate(images()):
        (folder / f"{number:03}.jpg").write_bytes(content)


def write_tar(folder: Path) -> None:
    with tarfile.open(folder / "pictures-000000.tar", "w") as tar:
        for number, ((_, content), label) in enumerate(zip(images(), labels(), strict=True)):
            for extension, value in (("jpg", content), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{number:06}.{extension}")
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))


def write_parquet(folder: Path) -> None:
    column = [{"bytes": content, "path": None} for _, content in images()]
    table = pyarrow.table({"image": column, "label": labels()})
    pyarrow.parquet.write_table(table, folder / "pictures.parquet", row_group_size=64)


def write_arrays(folder: Path) -> None:
    np.savez(folder / "train.npz", image=pixels(32), label=np.array(labels()))


def write_raw_records(folder: Path) -> None:
    records = [example({"image": [image.tobytes()]}) for image in pixels(224)]
    write_records(folder / "train.tfrecord", records)
