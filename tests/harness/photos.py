"""Drawn photos: JPEGs with the sizes, the detail and the decoding cost of ImageNet's.

A photo is a background with overlapping shapes, as coarse as objects, and noise whose spectrum
falls with the frequency as in natural images. Contrast varies from photo to photo and
within a photo, and so do the bytes.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tests.harness.process import ROOT

if TYPE_CHECKING:
    from PIL.Image import Image

PHOTO_COUNT = 256
"""Photos of a folder: some batches, drawn in a quarter of a minute."""

CACHE = ROOT / "build/photos"

_SIZES = {
    (500, 375): 0.36,
    (500, 333): 0.18,
    (375, 500): 0.10,
    (333, 500): 0.06,
    (640, 480): 0.06,
    (800, 600): 0.06,
    (1024, 768): 0.02,
    (300, 225): 0.12,
    (240, 180): 0.04,
}
"""Width and height in pixels → share of the photos; the mean is ImageNet's, 480 x 390."""

_SHAPES = 40
_CONTRAST = 21.0
"""Median standard deviation of the noise. More means more bytes per pixel."""
_CONTRAST_SPREAD = 0.8
"""Standard deviation of the contrast's logarithm. More means that the photos' bytes vary more."""
_QUALITIES = range(88, 97)
_FULL_CHROMA_SHARE = 0.75
"""Share of photos whose colours have the resolution of the brightness, as in ImageNet."""
_GREY_EVERY = 50

Pixels = npt.NDArray[np.float32]


def drawn_photos(cache: Path = CACHE, count: int = PHOTO_COUNT) -> Path:
    """Returns a folder of JPEGs with `labels.csv`, drawn once; another version has another folder.

    `count` photos are the same in every call with the same versions of NumPy and Pillow.
    """
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    folder = cache / f"{count}-{version}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as name:
            unfinished = Path(name) / "photos"
            unfinished.mkdir()
            write_photos(unfinished, count)
            _move(unfinished, folder)
    return folder


def write_photos(folder: Path, count: int, seed: int = 0) -> None:
    """Writes `drawn_NNNN.JPEG` and `labels.csv` with rows of file and label."""
    rows = ["file,label"]
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        image = _photo(rng)
        if number % _GREY_EVERY == _GREY_EVERY - 1:
            image = image.convert("L")
        name = f"drawn_{number:04}.JPEG"
        quality = int(rng.choice(_QUALITIES))
        subsampling = "4:4:4" if rng.random() < _FULL_CHROMA_SHARE else "4:2:0"
        image.save(folder / name, quality=quality, subsampling=subsampling)
        rows.append(f"{name},{number}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")


def _move(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process has drawn the same photos meanwhile.
        if not folder.is_dir():
            raise


def _photo(rng: np.random.Generator) -> Image:
    from PIL import Image

    width, height = list(_SIZES)[rng.choice(len(_SIZES), p=list(_SIZES.values()))]
    brightness = _noise(rng, height, width, rng.uniform(0.9, 1.4))
    detail = np.exp(0.8 * _noise(rng, height, width, 2.0))
    colour = 0.4 * _noise(rng, height, width, 1.5)
    contrast = _CONTRAST * rng.lognormal(0.0, _CONTRAST_SPREAD)
    noise = (brightness * detail)[..., None] + colour[..., None] * rng.standard_normal(3)
    pixels = np.asarray(_shapes(rng, width, height), np.float32) + contrast * noise
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _shapes(rng: np.random.Generator, width: int, height: int) -> Image:
    """Returns overlapping ellipses and rectangles; the small ones are more frequent."""
    from PIL import Image, ImageDraw

    def colour() -> tuple[Any, ...]:
        return tuple(rng.integers(20, 236, 3).tolist())

    image = Image.new("RGB", (width, height), colour())
    draw = ImageDraw.Draw(image)
    for _ in range(_SHAPES):
        radius = 0.03 * min(width, height) / rng.uniform(0.06, 1.0)
        x, y, elongation = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.4, 2.5)
        across, down = radius * elongation, radius / elongation
        shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
        shape((x - across, y - down, x + across, y + down), fill=colour())
    return image


def _noise(rng: np.random.Generator, height: int, width: int, slope: float) -> Pixels:
    """Returns noise of variance 1 whose amplitude is frequency ** -slope."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = np.inf
    real, imaginary = rng.standard_normal((2, *frequency.shape), np.float32)
    noise = np.fft.irfft2((real + 1j * imaginary) * frequency**-slope, (height, width))
    return (noise / noise.std()).astype(np.float32)
