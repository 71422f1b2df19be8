"""Map-style data sets of photos, decoded by Pillow, for infeed, PyTorch and Grain."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.arrays import SIDE
from benchmarks.photos import PATTERN, photo_folder
from PIL import Image

PROCESSES = 4
"""Worker processes of each side."""


class _Photos:
    """The files, by index."""

    def __init__(self) -> None:
        self._files = sorted(photo_folder().glob(PATTERN))

    def __len__(self) -> int:
        return len(self._files)


class ResizedPhotos(_Photos):
    """Reads a photo for each index, and scales all of it."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        with Image.open(self._files[index]) as file:
            photo = file.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        return {"image": np.asarray(photo)}


class CroppedPhotos(_Photos):
    """Reads a photo for each index: the largest square in its middle, scaled."""

    fingerprint = "cropped-photos-v1"

    def __getitem__(self, index: int) -> dict[str, Any]:
        with Image.open(self._files[index]) as file:
            photo = file.convert("RGB")
        side = min(photo.size)
        left, top = (photo.width - side) // 2, (photo.height - side) // 2
        window = (left, top, left + side, top + side)
        return {"image": np.asarray(photo.resize((SIDE, SIDE), Image.Resampling.BILINEAR, window))}
