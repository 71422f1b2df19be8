"""Pictures and short texts of samples, for JSON."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from infeed.shared import pictures
from infeed.shared.spec import Array

_MAX_SIDE = 256
"""Pixels; larger pictures are made smaller."""
_MAX_VALUE_LENGTH = 60
_MAX_VALUES = 8


def picture_field(fields: Mapping[str, Any]) -> str | None:
    """Returns the first field of a sample that is a picture."""
    arrays = {name: np.asarray(value) for name, value in fields.items()}
    shapes = {name: array.shape for name, array in arrays.items() if array.dtype.kind in "uifb"}
    return pictures.picture_field(shapes)


def data_url(pixels: Array) -> str:
    """Returns a picture as a small PNG."""
    stride = max(1, max(pixels.shape[:2]) // (2 * _MAX_SIDE))
    image = Image.fromarray(np.ascontiguousarray(pictures.to_uint8(pixels[::stride, ::stride])))
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def text_of(value: Any) -> str:
    """Returns a value in a few characters: text or numbers; of encoded data the size, of many
    numbers their type, shape and range."""
    array = np.asarray(value)
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
        if not text.isprintable() or "\ufffd" in text:
            return f"{len(value):,} bytes"
    elif array.size <= _MAX_VALUES:
        text = str(array.tolist())
    else:
        text = f"{array.dtype}{list(array.shape)}"
        if array.dtype.kind in "uif":
            text += f", {array.min():.6g} to {array.max():.6g}"
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 3]}..."
