"""Server under test, with several kinds of pipelines, and its recorded sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer
from tests.stress.fuzz.sessions import Session, record

_PIPELINES = """
pipelines:
  numbers:
    source: {arrays: numbers.npz}
    shuffle: {seed: 3}
    batch: {size: 4, remainder: pad}
  photos:
    source: {images: photos}
    shuffle: {seed: 5}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_resized_crop: {field: image, size: [16, 16]}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 3}
  files:
    source: {images: photos}
    shuffle: {mode: none}
    batch: {size: 2}
  rows:
    source: {dataset: data:rows}
    batch: {size: 5, remainder: pad}
"""

_DATA = """
import tensorflow as tf

def few(n):
    return n % 16 != 3

def named(n):
    return {"n": n}

def rows():
    return tf.data.Dataset.range(64).filter(few).map(named)
"""


@pytest.fixture(scope="session")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfeedServer]:
    folder = tmp_path_factory.mktemp("server")
    _write_data(folder)
    with InfeedServer("pipelines.yaml", folder / "server", launch=nursery.start) as running:
        yield running


@pytest.fixture(scope="session")
def sessions(server: InfeedServer) -> tuple[Session, ...]:
    return record(server.address)


def _write_data(folder: Path) -> None:
    (folder / "pipelines.yaml").write_text(_PIPELINES)
    (folder / "data.py").write_text(_DATA)
    rng = np.random.default_rng(0)
    table = rng.integers(0, 1 << 30, (48, 7)).astype(np.float32)
    np.savez(folder / "numbers.npz", table=table, label=np.arange(48))
    (folder / "photos").mkdir()
    for number in range(9):
        height, width = rng.integers(20, 40, 2)
        picture = Image.fromarray(rng.integers(0, 255, (height, width, 3)).astype(np.uint8))
        picture.save(folder / f"photos/{number}.jpeg")
