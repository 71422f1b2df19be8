"""Pictures and short texts of samples and of their stages, for JSON."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from infeed.shared.spec import Array
from infeed_server.pipeline.sample_stage import SampleStage

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


def stages_json(stages: Sequence[SampleStage]) -> list[dict[str, Any]]:
    """Returns each stage with its picture, and the fields that it added, changed or removed."""
    listed = []
    before: Mapping[str, Any] = {}
    image: str | None = None
    for stage in stages:
        changed = [name for name, value in stage.fields.items() if not _same(before, name, value)]
        field = picture_field(stage.fields)
        if stage.error is not None:
            image = None if stage.recovered is None else data_url(stage.recovered)
        elif field is None:
            image = None
        elif field in changed or image is None:
            image = data_url(stage.fields[field])
        listed.append(
            {
                "stage": stage.name,
                "place": stage.place,
                "image_field": field,
                "image": image,
                "values": {name: long_text_of(stage.fields[name]) for name in changed},
                "removed": [name for name in before if name not in stage.fields],
                "error": stage.error,
            }
        )
        before = stage.fields
    return listed


def is_sent(stages: Sequence[SampleStage], sent: Mapping[str, Array]) -> bool | None:
    """Returns whether the last stage of the server has the bits of the batch that was served.

    None without stages.
    """
    at_server = [each for each in stages if each.place == "server"]
    if not at_server:
        return None
    last = at_server[-1]
    return (
        last.error is None
        and last.fields.keys() == sent.keys()
        and all(_equal(value, last.fields[name]) for name, value in sent.items())
    )


def _same(before: Mapping[str, Any], name: str, value: Any) -> bool:
    return name in before and _equal(before[name], value)


def _equal(one: Any, other: Any) -> bool:
    """Returns whether two values have the same type, shape and bits."""
    if one is other:
        return True
    first, second = np.asarray(one), np.asarray(other)
    if first.dtype.kind in "OS" or second.dtype.kind in "OS":
        return first.shape == second.shape and bool(np.all(first == second))
    same = (first.dtype, first.shape) == (second.dtype, second.shape)
    return same and first.tobytes() == second.tobytes()
