"""Targets over a picture: masks as colours, boxes as outlines, key points as dots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infeed.batch import Batch
from infeed.shared.spec import Array, TargetSpec

if TYPE_CHECKING:
    from PIL.Image import Image

_COLOURS = np.array(
    [[230, 25, 75], [60, 220, 75], [0, 130, 255], [255, 225, 25], [245, 130, 48], [145, 30, 180],
     [70, 240, 240], [240, 50, 230], [210, 245, 60], [250, 190, 212]], np.uint8
)  # fmt: skip
"""Colours of classes by number, repeated after the last."""

_DOT = 2
"""The radius of a dot in pixels."""


def draw_target(
    picture: Image,
    target: TargetSpec,
    batch: Batch,
    slot: int,
    scale: int,
    names: Sequence[str] = (),
) -> Image:
    """Returns a picture, `scale` times as large as in the batch, with a target drawn on it, and the
    class `names` of its boxes."""
    from PIL import ImageDraw  # noqa: PLC0415 - not in the light install

    values = np.asarray(batch[target.field][slot])
    if target.kind == "mask":
        return _with_mask(picture, values, scale)
    picture = picture.convert("RGB")
    draw = ImageDraw.Draw(picture)
    count = batch.get(f"{target.field}_count")
    if count is not None:
        values = values[: int(count[slot])]
    factor = np.array(picture.size if target.normalized else (scale, scale))
    if target.kind == "boxes":
        labels = _labels(batch, slot)
        for box, label in zip(_corners(values, target.format), labels, strict=False):
            colour = tuple(map(int, _COLOURS[label % len(_COLOURS)]))
            corners = (box.reshape(2, 2) * factor - [[0, 0], [1, 1]]).flatten()
            if corners[2] >= corners[0] and corners[3] >= corners[1]:
                draw.rectangle(corners.tolist(), outline=colour, width=2)
                if 0 <= label < len(names):
                    place = tuple((corners[:2] + 3).tolist())
                    draw.text(place, names[label], "white", stroke_width=1, stroke_fill="black")
        return picture
    for point in values.reshape(-1, values.shape[-1]):
        if values.shape[-1] == 2 or point[2] > 0:
            x, y = point[:2] * factor
            draw.ellipse([x - _DOT, y - _DOT, x + _DOT, y + _DOT], fill="yellow", outline="black")
    return picture


def _with_mask(picture: Image, mask: Array, scale: int) -> Image:
    """Blends the colours of classes other than 0 into the pixels."""
    from PIL import Image as image  # noqa: N813, PLC0415

    classes = np.repeat(np.repeat(mask.reshape((*mask.shape[:2], -1))[..., 0], scale, 0), scale, 1)
    classes = np.nan_to_num(classes).astype(np.int64)
    pixels = np.asarray(picture.convert("RGB"))
    mixed = (pixels // 2 + _COLOURS[(classes - 1) % len(_COLOURS)] // 2).astype(np.uint8)
    return image.fromarray(np.where((classes != 0)[..., np.newaxis], mixed, pixels))


def _corners(boxes: Array, format_: str) -> Any:
    first, second = boxes[:, :2], boxes[:, 2:]
    if format_ == "cxcywh":
        first = first - second / 2
    return boxes if format_ == "xyxy" else np.concatenate([first, first + second], 1)


def _labels(batch: Batch, slot: int) -> list[int]:
    """Returns a number for each box: its class, if there are labels, or its index."""
    labels = np.asarray(batch["label"][slot]) if "label" in batch else np.zeros(0)
    is_row = labels.ndim == 1 and labels.dtype.kind in "iu"
    return [*map(int, labels)] if is_row else [*range(1024)]
