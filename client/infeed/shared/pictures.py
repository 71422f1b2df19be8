"""Pictures of samples: which field is one, and its pixels as uint8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from infeed.shared.spec import Array

_MIN_GREY_SIDE = 8
"""Minimum pixels: a smaller matrix is hardly a picture."""


def picture_field(shapes: Mapping[str, Sequence[int]]) -> str | None:
    """Returns the first field of samples that is a picture: with channels, else a matrix."""
    for name, shape in shapes.items():
        if len(shape) == 3 and shape[-1] in (1, 3, 4) and 0 not in shape:
            return name
    for name, shape in shapes.items():
        if len(shape) == 2 and min(shape) >= _MIN_GREY_SIDE:
            return name
    return None


def to_uint8(pixels: Array) -> Array:
    """Scales other types than uint8 to 0-255, and drops the single channel of `[..., h, w, 1]`."""
    if pixels.dtype != np.uint8:
        numbers = np.nan_to_num(pixels.astype(np.float64))
        low, high = numbers.min(), numbers.max()
        pixels = ((numbers - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    return pixels[..., 0] if pixels.ndim > 2 and pixels.shape[-1] == 1 else pixels
