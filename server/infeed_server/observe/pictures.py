"""Pictures and short texts of samples and of their stages, for JSON."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from infeed.shared import pictures
from infeed.shared.spec import Array

if TYPE_CHECKING:  # or it would load TensorFlow
    from infeed_server.pipeline.sample_stages import SampleStage

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


def stages_json(stages: Sequence[SampleStage]) -> list[dict[str, Any]]:
    """Returns each stage with its picture, and the fields that it added, changed or removed."""
    listed = []
    before: Mapping[str, Any] = {}
    image: str | None = None
    for stage in stages:
        changed = {
            name: text_of(value)
            for name, value in stage.fields.items()
            if name not in before or not _equal(before[name], value)
        }
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
                "values": changed,
                "removed": [name for name in before if name not in stage.fields],
                "error": stage.error,
            }
        )
        before = stage.fields
    return listed


def is_sent(stages: Sequence[SampleStage], sent: Mapping[str, Array]) -> bool | None:
    """Returns whether the last stage of the server has the bits of the batch that was served; None
    without stages."""
    last = next((stage for stage in reversed(stages) if stage.place == "server"), None)
    if last is None:
        return None
    return (
        last.error is None
        and last.fields.keys() == sent.keys()
        and all(_equal(value, last.fields[name]) for name, value in sent.items())
    )


def _equal(one: Any, other: Any) -> bool:
    """Returns whether two values have the same type, shape and bits."""
    if one is other:
        return True
    first, second = np.asarray(one), np.asarray(other)
    if first.dtype.kind in "OS" or second.dtype.kind in "OS":
        return np.array_equal(first, second)
    same = (first.dtype, first.shape) == (second.dtype, second.shape)
    return same and first.tobytes() == second.tobytes()
