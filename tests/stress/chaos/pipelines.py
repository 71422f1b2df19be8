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
    images = images or _photo_folder()
    definition = _write_definition(
        folder,
        f"""
pipelines:
  photos:
    source: {{images: {images.resolve()}, labels: {images.resolve()}/labels.csv}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [224, 224]}}
      - random_flip_left_right: {{field: image}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: 32}}
""",
    )
    rows = (images / "labels.csv").read_text().splitlines()
    count = sum(row != "file,label" for row in rows)
    return ServedPipeline("photos", definition, count, 32, 0.25, 40_000_000, 8 << 20)


def arrays(folder: Path) -> ServedPipeline:
    rng = np.random.default_rng(0)
    np.savez(
        folder / "arrays.npz",
        x=rng.random((_ARRAY_SAMPLES, 32), np.float32),
        label=np.arange(_ARRAY_SAMPLES),
    )
    definition = _write_definition(
        folder,
        f"""
pipelines:
  arrays:
    source: {{arrays: {folder}/arrays.npz}}
    shuffle: {{seed: 17}}
    batch: {{size: 16}}
""",
    )
    return ServedPipeline(
        "arrays", definition, _ARRAY_SAMPLES, 16, 0.05, 16 * 132 * 8, 16 * 132 * 8
    )


def _photo_folder() -> Path:
    chosen = os.environ.get("INFEED_TEST_PHOTOS")
    if not chosen:
        return drawn_photos()
    if not Path(chosen, "labels.csv").is_file():
        raise HarnessError(
            f"INFEED_TEST_PHOTOS: no file {chosen}/labels.csv; unset it to draw photos"
        )
    return Path(chosen)


def _write_definition(folder: Path, text: str) -> Path:
    definition = folder / "pipelines.yaml"
    definition.write_text(text)
    return definition


PIPELINES = {"photos": photos, "arrays": arrays}
