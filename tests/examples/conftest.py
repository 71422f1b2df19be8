"""Fixtures that serve the pipelines of `examples/` unchanged, over data that a test writes."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

import infeed

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass
class Rows:
    """The filled slots of a feed's batches, concatenated."""

    fields: dict[str, np.ndarray]
    ids: np.ndarray
    sizes: list[int]
    """Filled slots of each batch."""

    def __getitem__(self, name: str) -> np.ndarray:
        return self.fields[name]


@dataclass
class Example:
    """A copy of an example with a `data` folder, which the test fills before serving."""

    file: Path
    data: Path
    serve: Callable[..., Any]
    address: str | None = None

    @property
    def text(self) -> str:
        return self.file.read_text()

    @property
    def pipeline(self) -> str:
        """The name of the file's only pipeline."""
        (name,) = yaml.safe_load(self.text)["pipelines"]
        return str(name)

    def functions(self) -> ModuleType:
        """Loads the copied `functions.py` again, apart from the module that the server imported."""
        file = self.file.with_name("functions.py")
        spec = importlib.util.spec_from_file_location("reference_functions", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def connect(self, **options: Any) -> infeed.Feed:
        """Returns a feed of the example; starts its server on the first call."""
        if self.address is None:
            self.address = str(self.serve(self.text, self.file.name).address)
        return infeed.connect(self.address, self.pipeline, **options)

    def read(self, epochs: int = 1, **options: Any) -> Rows:
        """Reads whole epochs, the last samples included."""
        with self.connect(epochs=epochs, remainder="pad", **options) as feed:
            batches = list(feed)
        return Rows(
            {name: np.concatenate([b[name][b.mask] for b in batches]) for name in batches[0]},
            np.concatenate([b.sample_ids[b.mask] for b in batches]),
            [int(b.mask.sum()) for b in batches],
        )


@pytest.fixture
def example(
    tmp_path: Path, serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Example]]:
    """`example(name)` copies that YAML file and `functions.py` beside an empty `data` folder."""
    monkeypatch.delenv("DATA", raising=False)
    # Serving adds the copy to the path and imports its `functions`; each test has its own copy.
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("functions", None)

    def copy(name: str) -> Example:
        shutil.copy(EXAMPLES / "functions.py", tmp_path)
        file = Path(shutil.copy(EXAMPLES / f"{name}.yaml", tmp_path))
        data = tmp_path / "data"
        data.mkdir()
        return Example(file, data, serve)

    yield copy
    sys.modules.pop("functions", None)


@pytest.fixture
def draw_image() -> Callable[..., np.ndarray]:
    """`draw_image(seed, height, width, channels)` returns an image that JPEG compresses well."""
    import tensorflow as tf

    def draw(seed: int, height: int, width: int, channels: int = 3) -> np.ndarray:
        coarse = np.random.default_rng(seed).integers(0, 256, (5, 5, channels))
        smooth = tf.image.resize(coarse, [height, width], "bicubic")
        return tf.saturate_cast(tf.round(smooth), tf.uint8).numpy()

    return draw
