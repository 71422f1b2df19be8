"""A source with every type of field, and a function that packs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from tests.harness.datasets import jpeg

from infeed_tools.pack.destination import Destination
from infeed_tools.pack.options import Location, PackOptions, Part
from infeed_tools.pack.plan import Plan, make_plan
from infeed_tools.pack.reader import open_reader
from infeed_tools.pack.run import Run

SAMPLES = 23
ARRAYS = {
    "bool": np.arange(SAMPLES) % 2 == 0,
    "bytes": np.arange(SAMPLES * 12, dtype=np.uint8).reshape(SAMPLES, 4, 3),
    "class": np.arange(SAMPLES, dtype=np.int32) - 3,
    "double": np.linspace(0, 1, SAMPLES),
    "float": np.array([[n / 3, np.nan] for n in range(SAMPLES)], np.float32),
    "Half/16": np.linspace(-1, 1, SAMPLES, dtype=np.float16),
    "ids": np.arange(SAMPLES * 2).reshape(SAMPLES, 2) - (1 << 62),
    "large": np.arange(SAMPLES, dtype=np.uint64) + np.uint64(1 << 63),
    "text": np.array([f"word {n}" for n in range(SAMPLES)]),
}


class Packed(NamedTuple):
    plan: Plan
    destination: Destination
    manifest: dict[str, Any] | None


Pack = Callable[..., Packed]


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """Returns a file with the pipeline `all`, of arrays of each type."""
    np.savez(tmp_path / "all.npz", **ARRAYS)  # type: ignore[arg-type]
    file = tmp_path / "arrays.yaml"
    file.write_text(f"pipelines: {{all: {{source: {{arrays: {tmp_path}/all.npz}}, batch: 4}}}}\n")
    return file


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Returns a file with the pipeline `all`, of images."""
    for number in range(9):
        folder = tmp_path / "photos" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        size = (40 + 10 * number, 30 + number)
        (folder / f"{number}.jpg").write_bytes(jpeg(number, size))
    file = tmp_path / "photos.yaml"
    file.write_text("pipelines: {all: {source: {images: photos, labels: folders}, batch: 4}}\n")
    return file


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Returns a file with the pipeline `all`, of 20 JPEGs like a camera's with labels in a CSV."""
    rows, rng = ["file,label"], np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    for number in range(20):
        coarse = Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
        picture = coarse.resize((120 + 7 * number, 96 + 5 * number), Image.Resampling.BICUBIC)
        picture.save(tmp_path / "pictures" / f"{number}.jpg", quality=85)
        rows.append(f"{number}.jpg,{number * 7 % 5}")
    (tmp_path / "pictures" / "labels.csv").write_text("\n".join(rows) + "\n")
    source = f"{{images: {tmp_path}/pictures, labels: {tmp_path}/pictures/labels.csv}}"
    file = tmp_path / "pictures.yaml"
    file.write_text(f"pipelines: {{all: {{source: {source}, batch: 4}}}}\n")
    return file


def run_pack(
    file: Path, dest: Path | str, part: Part | None = None, workers: int = 1, **options: Any
) -> Packed:
    """Packs the pipeline `all` of a file."""
    location = Location(str(file), "all")
    chosen = PackOptions(**{"samples_per_shard": 4, **options})
    reader, destination = open_reader(location, chosen), Destination(str(dest))
    plan, _ = make_plan(reader, location, chosen)
    plan.claim(destination)
    manifest = Run(plan, destination, reader, workers, lambda _: None).pack(part or Part())
    return Packed(plan, destination, manifest)


def files_of(folder: Path) -> dict[str, bytes]:
    """Returns the name and content of each file."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}
