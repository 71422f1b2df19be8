"""Pillow's functions as twins of transforms: torchvision's definitions for pictures of Pillow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from PIL import Image


def pictures() -> Iterator[Any]:
    """Yields pictures of uint8: smooth, dark, noisy, of two values, of one value, grey, and one or
    two pixels high or wide."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (31, 30, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(noise[:9, :11]).resize((53, 47), Image.Resampling.BICUBIC))
    yield from (smooth, (smooth // 3 + 40).astype(np.uint8), noise)
    yield from (np.where(noise < 128, 10, 200).astype(np.uint8), np.full((8, 9, 3), 77, np.uint8))
    yield from (smooth[..., :1], noise[..., :1])
    yield from (noise[:height, :width] for height, width in ((1, 16), (16, 1), (1, 1), (2, 9)))


def by_pillow(function: Callable[..., Any], pixels: Any, *options: Any) -> Any:
    """Returns the result of a function of Pillow's pictures, for pixels."""
    picture = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
    return np.asarray(function(picture, *options)).reshape(pixels.shape)
