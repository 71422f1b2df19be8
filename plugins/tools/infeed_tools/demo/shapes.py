"""The demo's data set: small JPEG images of shapes, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from infeed.shared.spec import Array

SIZE = 56
"""Width and height of an image in pixels."""

Shape = Callable[[Array, Array], Array]
"""A function of the coordinates x and y in [-1, 1], which returns the mask of the shape."""

SHAPES: dict[str, Shape] = {
    "disc": lambda x, y: x**2 + y**2 < 0.8,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) < 0.75,
    "triangle": lambda x, y: (y < 0.7) & (abs(x) < (y + 0.9) / 1.8),
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) < 0.28) & (np.maximum(abs(x), abs(y)) < 0.9),
    "ring": lambda x, y: (x**2 + y**2 < 0.9) & (x**2 + y**2 > 0.35),
}


def write_images(directory: Path, count: int, seed: int) -> Iterator[Path]:
    """Writes `count` JPEGs, into a folder per shape; yields each file. Classes alternate; position,
    size, colours and noise are drawn from the seed."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        name = list(SHAPES)[number % len(SHAPES)]
        file = directory / name / f"{number:05}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.io.encode_jpeg(draw(SHAPES[name], rng), quality=90).numpy())
        yield file


def draw(shape: Shape, rng: np.random.Generator) -> Array:
    """Draws one image: uint8[SIZE, SIZE, 3]."""
    radius = rng.uniform(0.28, 0.42) * SIZE
    left, top = rng.uniform(radius, SIZE - radius, 2)
    y, x = np.mgrid[:SIZE, :SIZE]
    inside = shape((x - left) / radius, (y - top) / radius)
    dark, light = rng.uniform(20, 100, 3), rng.uniform(150, 235, 3)
    background, foreground = (dark, light) if rng.random() < 0.5 else (light, dark)
    image = np.where(inside[..., np.newaxis], foreground, background)
    return (image + rng.normal(0, 12, image.shape)).clip(0, 255).astype(np.uint8)
