"""A folder of pictures to annotate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from infeed_server.sources.images.source import ImageReader, ImagesSource

Open = Callable[..., ImageReader]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three pictures of 40 x 20 pixels, one in a folder."""
    folder = tmp_path / "images"
    (folder / "in").mkdir(parents=True)
    for name in ("a.jpg", "b.jpg", "in/c.jpg"):
        Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(folder / name)
    return folder


@pytest.fixture
def open_labels(pictures: Path) -> Open:
    """`open_labels({"coco": path})` opens the pictures with labels."""

    def open_labels(labels: Any) -> ImageReader:
        value = {"images": str(pictures), "labels": labels}
        return ImagesSource.model_validate(value).resolve(pictures.parent).open()

    return open_labels
