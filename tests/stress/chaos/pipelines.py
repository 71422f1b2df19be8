"""Pipelines of a run: photos, for a comparison of pixels, or small arrays, for short runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.harness.photos import drawn_photos
from tests.harness.waiting import HarnessError

_ARRAY_SAMPLES = 1_000


@dataclass(frozen=True)
class ServedPipeline:
    """Pipeline with its trainers' options.

    `pause` is the time between two steps in seconds. `prefetch_bytes` is so small that the loss of
    a server delays a trainer.
    """

    name: str
    definition: Path
    sample_count: int
    batch_size: int
    pause: float
    prefetch_bytes: int
    reset_bytes: int
    """Maximum bytes from a server before its connections are reset: a few batches."""


def photos(folder: Path, images: Path | None = None) -> ServedPipeline:
    """Writes a pipeline of photos: a batch has 4.8 MB on the wire, 19.3 MB when finished.

    Without `images`, they are from `INFEED_TEST_PHOTOS`, or drawn.
    """
    images = (images or Path(os.environ.get("INFEED_TEST_PHOTOS") or drawn_photos())).resolve()
    labels = images / "labels.csv"
    if not labels.is_file():
        raise HarnessError(f"INFEED_TEST_PHOTOS: no file {labels}; unset it to draw photos")
    text = f"""
pipelines:
  photos:
    source: {{images: {images}, labels: {labels}}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [224, 224]}}
      - random_flip_left_right: {{field: image}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: 32}}
"""
    (folder / "pipelines.yaml").write_text(text)
    count = sum(row != "file,label" for row in labels.read_text().splitlines())
    return ServedPipeline("photos", folder / "pipelines.yaml", count, 32, 0.25, 40_000_000, 8 << 20)


def arrays(folder: Path) -> ServedPipeline:
    rng = np.random.default_rng(0)
    x = rng.random((_ARRAY_SAMPLES, 32), np.float32)
    np.savez(folder / "arrays.npz", x=x, label=np.arange(_ARRAY_SAMPLES))
    text = f"""
pipelines:
  arrays:
    source: {{arrays: {folder}/arrays.npz}}
    shuffle: {{seed: 17}}
    batch: {{size: 16}}
"""
    (folder / "pipelines.yaml").write_text(text)
    window = 16 * 132 * 8
    return ServedPipeline(
        "arrays", folder / "pipelines.yaml", _ARRAY_SAMPLES, 16, 0.05, window, window
    )


PIPELINES = {"photos": photos, "arrays": arrays}
