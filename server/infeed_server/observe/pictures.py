"""Pictures and short texts of the values of samples, for JSON."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from infeed.shared.spec import Array

_MAX_SIDE = 256
"""Pixels; larger pictures are made smaller."""
_MIN_GREY_SIDE = 8
"""Pixels; a smaller matrix is hardly an image."""
_MAX_VALUE_LENGTH = 60
_MAX_VALUES = 8


def picture_field(fields: Mapping[str, Any]) -> str | None:
    """Returns the first field of a sample that is a picture: with channels, else a matrix."""
    arrays = {name: np.asarray(value) for name, value in fields.items()}
    numeric = {name: each for name, each in arrays.items() if each.dtype.kind in "uifb"}
    for name, array in numeric.items():
        if array.ndim == 3 and array.shape[-1] in (1, 3, 4) and array.size:
            return name
    for name, array in numeric.items():
        if array.ndim == 2 and min(array.shape) >= _MIN_GREY_SIDE:
            return name
    return None


def data_url(pixels: Array) -> str:
    """Returns a picture as a small PNG; numbers other than uint8 are scaled to 0-255."""
    stride = max(1, max(pixels.shape[:2]) // (2 * _MAX_SIDE))
    pixels = pixels[::stride, ::stride]  # before the copies below
    if pixels.dtype != np.uint8:
        numbers = np.nan_to_num(pixels.astype(np.float64))
        low, high = float(numbers.min()), float(numbers.max())
        pixels = ((numbers - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def text_of(value: Any) -> str:
    """Returns a value of a sample in a few characters."""
    if isinstance(value, bytes):
        text = value[: 2 * _MAX_VALUE_LENGTH].decode(errors="replace")
    else:
        array = np.asarray(value)
        is_short = array.size <= _MAX_VALUES
        text = str(array.tolist()) if is_short else f"{array.dtype}{list(array.shape)}"
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 3]}..."


def long_text_of(value: Any) -> str:
    """Returns a value as `text_of` does; encoded data with its size, large arrays with a range."""
    if isinstance(value, bytes) and not _is_text(value):
        return f"{len(value):,} bytes"
    array = np.asarray(value)
    if array.size > _MAX_VALUES and array.dtype.kind in "uif":
        return f"{array.dtype}{list(array.shape)}, {_number(array.min())} to {_number(array.max())}"
    return text_of(value)


def _number(value: Any) -> str:
    return str(int(value)) if np.asarray(value).dtype.kind in "ui" else f"{float(value):.3g}"


def _is_text(value: bytes) -> bool:
    try:
        return len(value) <= _MAX_VALUE_LENGTH and value.decode().isprintable()
    except UnicodeDecodeError:
        return False
