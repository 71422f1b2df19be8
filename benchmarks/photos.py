"""Photos of the decoding cases: JPEGs of a chosen folder, or drawn ones."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.processes import BenchmarkError
from tests.harness.photos import drawn_photos

VARIABLE = "INFEED_BENCH_PHOTOS"
"""Environment variable with the folder of JPEGs; without it, photos are drawn."""

PATTERN = "*.JPEG"


def photo_folder() -> Path:
    """Returns the folder of JPEGs. Draws them the first time, unless a folder is chosen.

    Raises `BenchmarkError` if the chosen folder has no JPEG.
    """
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return drawn_photos()
    folder = Path(chosen).resolve()
    if not any(folder.glob(PATTERN)):
        raise BenchmarkError(f"{VARIABLE}: no file {folder}/{PATTERN}; unset it to draw photos")
    return folder


def describe() -> str:
    """Returns the photos' number, origin and mean size, on which the decoding cases depend."""
    from PIL import Image

    folder = photo_folder()
    files = sorted(folder.glob(PATTERN))
    width = height = 0
    for file in files:
        with Image.open(file) as image:
            width, height = width + image.width, height + image.height
    count, kilobytes = len(files), sum(file.stat().st_size for file in files) / 1e3
    origin = f"of {folder.name}" if os.environ.get(VARIABLE) else "drawn"
    return (
        f"{count} {origin}, on average {width / count:.0f} x {height / count:.0f} pixels "
        f"and {kilobytes / count:.0f} KB"
    )
