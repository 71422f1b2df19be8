"""Contact sheet: a grid of a batch's images, each above its sample id, label and position."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from infeed.batch import Batch
from infeed.cli.output import problem_of
from infeed.shared.errors import InvalidRequestError, MissingExtraError
from infeed.shared.pictures import picture_field, to_uint8
from infeed.shared.spec import PipelineSpec
from infeed_tools.peek.overlay import draw_target

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_IMAGES = 64
"""Images on the sheet, the first of a larger batch."""

_IMAGES_PER_ROW = 8
_MIN_WIDTH = 64
"""Pixels: smaller images are enlarged by a whole factor, which keeps single pixels visible."""

_FONT_SIZE = 12
_GAP = 4
_MAX_LABEL_LENGTH = 16
_MAX_SHARES = 3


def write_sheet(path: Path, batch: Batch, spec: PipelineSpec) -> None:
    """Writes the pictures of a batch, for the option `--png`. Raises `InvalidRequestError`, and
    `MissingExtraError`."""
    try:
        # Always a PNG, regardless of the extension.
        contact_sheet(batch, spec).save(path, format="PNG")
    except ImportError:
        raise MissingExtraError("--png needs Pillow: pip install 'infeed[cli]'") from None
    except OSError as error:
        raise InvalidRequestError(f"--png {path}: {problem_of(error)}", file=path) from None


def contact_sheet(batch: Batch, spec: PipelineSpec) -> Image:
    """Draws the picture that has targets, with the targets, or else the first field of images.
    Raises `InvalidRequestError` if there is none."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - not in the light install

    shapes = {field.name: field.shape for field in spec.element_spec}
    name = spec.targets[0].picture if spec.targets else picture_field(shapes)
    if name is None:
        raise InvalidRequestError(
            "--png: no field has images of 1, 3 or 4 channels; fields: "
            f"{', '.join(map(str, spec.element_spec))}; omit --png, or add decode_image to the "
            "pipeline"
        )
    pixels = to_uint8(batch[name][:MAX_IMAGES])
    height, width = pixels.shape[1:3]
    scale = -(-_MIN_WIDTH // max(1, width))
    height, width = scale * height, scale * width
    font = ImageFont.load_default(_FONT_SIZE)
    captions = [_caption(batch, spec, slot) for slot in range(len(pixels))]
    draw = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    boxes = [draw.multiline_textbbox((0, 0), text, font) for text in captions]
    cell_width = int(max(width, *(box[2] for box in boxes))) + _GAP
    cell_height = int(height + max(box[3] for box in boxes)) + 3 * _GAP
    columns = min(_IMAGES_PER_ROW, len(pixels))
    rows = -(-len(pixels) // columns)
    sheet = Image.new("RGB", (columns * cell_width, rows * cell_height), "white")
    draw = ImageDraw.Draw(sheet)
    names = spec.classes.get("label", ())
    for slot, (image, caption) in enumerate(zip(pixels, captions, strict=True)):
        left, top = slot % columns * cell_width, slot // columns * cell_height
        enlarged = Image.fromarray(image).resize((width, height), Image.Resampling.NEAREST)
        for target in spec.targets:
            if target.picture == name and batch.mask[slot]:
                enlarged = draw_target(enlarged, target, batch, slot, scale, names)
        sheet.paste(enlarged, (left, top))
        draw.multiline_text((left, top + height + _GAP), caption, "black", font)
    return sheet


def _caption(batch: Batch, spec: PipelineSpec, slot: int) -> str:
    """Returns the lines below an image."""
    if not batch.mask[slot]:
        return "empty slot"
    # A dataset that makes its own batches counts one position for each.
    position = batch.start if spec.batch_stride else batch.start + slot
    lines = [f"sample {batch.sample_ids[slot]}", f"position {position}"]
    counts = {f"{target.field}_count": target.field for target in spec.targets}
    rows = [f"{batch[name][slot]} {field}" for name, field in counts.items() if name in batch]
    lines[1:1] = rows
    if "label" in batch and not rows:
        names = spec.classes.get("label", ())
        lines.insert(1, f"label {label_text(batch['label'][slot], names)}")
    return "\n".join(lines)


def row_count(batch: Batch, spec: PipelineSpec, name: str, slot: int) -> int | None:
    """Returns the number of a field's rows, one per box, without the padding; None for others."""
    for target in spec.targets:
        count = batch.get(f"{target.field}_count")
        if count is not None and batch[name].shape[1:] == batch[target.field].shape[1:2]:
            return int(count[slot])
    return None


def label_text(value: Any, names: Sequence[str] = (), rows: int | None = None) -> str:
    """Returns a label as text, with its name: the class of a one-hot vector, the largest shares of
    a mixed one, or the labels of the first `rows`."""
    if rows is not None:
        return f"[{', '.join(label_text(one, names) for one in value[:rows])}]"
    label = np.asarray(value)
    if label.ndim == 1 and np.count_nonzero(label) == 1 and label.max() == 1:
        value = label = np.asarray(label.argmax())
    if not label.ndim and label.dtype.kind in "iu" and 0 <= label < len(names):
        value = f"{label} {names[int(label)]}"
    if label.ndim == 1 and label.dtype.kind not in "OSU":
        shares = label.astype(np.float64)
        has_each = len(shares) == len(names) or np.isclose(shares.sum(), 1, atol=0.01)
        if has_each and ((shares >= 0) & (shares <= 1)).all():
            return _shares_text(shares, names)
    if label.ndim:
        return f"of shape {list(label.shape)}"
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
    else:
        text = f"{label:.6g}" if label.dtype.kind == "f" else str(value)
    return _short(text)


def _shares_text(shares: npt.NDArray[np.float64], names: Sequence[str]) -> str:
    """Returns the largest shares of classes, with their names."""
    found = [n for n in np.argsort(-shares, kind="stable").tolist() if shares[n]]
    classes = (_short(names[n]) if n < len(names) else f"class {n}" for n in found[:_MAX_SHARES])
    parts = [f"{shares[n]:.2g} {name}" for n, name in zip(found, classes, strict=False)]
    return ", ".join(parts + ["..."] * (len(found) > _MAX_SHARES)) or "no class"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_LABEL_LENGTH else f"{text[: _MAX_LABEL_LENGTH - 3]}..."
