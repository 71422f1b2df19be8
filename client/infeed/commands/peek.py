"""The command `infeed peek`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import infeed
from infeed.batch import Batch
from infeed.commands.connection import connects
from infeed.errors import InvalidRequestError, MissingExtraError
from infeed.spec import BYTES, Array, FieldSpec

_GRID = 8
"""Images in a row of the PNG."""

_MAX_IMAGES = 64


@connects
def peek(
    *,
    connection: dict[str, Any],
    target: Annotated[str, typer.Argument(help="host:port of a server.")],
    pipeline: Annotated[str, typer.Argument(help="The pipeline's name.")],
    batch_size: Annotated[int | None, typer.Option(help="Default: the pipeline's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the pipeline's.")] = None,
    step: Annotated[int, typer.Option(min=0, help="Which step to look at.")] = 0,
    png: Annotated[Path | None, typer.Option(help="Draw the images to this file.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the server.")] = 20.0,
) -> None:
    """Show the specs, value ranges and provenance of a live batch."""
    console = Console()
    options = {"batch_size": batch_size, "seed": seed, "timeout": timeout, **connection}
    with infeed.connect(target, pipeline, **options) as feed:
        state = feed.state()
    state["position"] = step * feed.spec.stride(feed.batch_size)
    with infeed.connect(target, pipeline, **options, state=state) as feed:
        batch = feed.next(timeout=max(timeout, 60.0))
        _describe(console, feed, batch)
    if png is not None:
        _draw(batch, feed.element_spec, png)
        console.print(f"images: {png}")


def _describe(console: Console, feed: infeed.Feed, batch: Batch) -> None:
    spec = feed.spec
    console.print(f"[bold]{spec.name}[/] fingerprint {spec.fingerprint}", highlight=False)
    console.print(
        f"{spec.sample_count or 'unknown'} samples; {spec.guarantee}; "
        f"server {spec.server_version}, {spec.engine.replace('_', '-')} engine",
        highlight=False,
    )
    finish = ", ".join(str(transform) for transform in spec.finish_transforms) or "none"
    console.print(f"finish transforms: {finish}", highlight=False, markup=False)
    table = Table("field", "data type", "shape", "on the wire", "least", "most", "mean")
    wire = {field.name: field for field in spec.wire_spec}
    for field in spec.element_spec:
        on_wire = wire[field.name].data_type if field.name in wire else "?"
        values = _range(field, batch[field.name])
        shape = str(list(batch[field.name].shape))
        table.add_row(field.name, field.data_type, shape, on_wire, *values)
    console.print(table)
    ids = ", ".join(map(str, batch.sample_ids[:16].tolist()))
    more = ", ..." if len(batch.sample_ids) > 16 else ""
    console.print(
        f"start {batch.start}, epoch {batch.epoch}, sample ids {ids}{more}", highlight=False
    )


def _range(field: FieldSpec, values: Array) -> tuple[str, str, str]:
    if field.data_type == BYTES:
        lengths = [len(item) for item in values.reshape(-1)]
        return f"{min(lengths)} bytes", f"{max(lengths)} bytes", f"{np.mean(lengths):.1f} bytes"
    numbers = values.astype(np.float64)
    return f"{numbers.min():.6g}", f"{numbers.max():.6g}", f"{numbers.mean():.6g}"


def _draw(batch: Batch, fields: tuple[FieldSpec, ...], file: Path) -> None:
    try:
        from PIL import Image  # noqa: PLC0415 - only --png needs it
    except ImportError:
        raise MissingExtraError("--png needs Pillow: pip install 'infeed[cli]'") from None
    images = [field for field in fields if len(field.shape) == 3 and field.shape[-1] in (1, 3, 4)]
    if not images:
        shown = ", ".join(map(str, fields))
        raise InvalidRequestError(f"no field holds images of 1, 3 or 4 channels; fields: {shown}")
    pixels = _to_bytes(batch[images[0].name][:_MAX_IMAGES])
    Image.fromarray(_tile(pixels)).save(file)


def _to_bytes(images: Array) -> Array:
    """Any numbers stretched to 0-255; bytes as they are; grey in three channels."""
    if images.dtype != np.uint8:
        numbers = images.astype(np.float64)
        low, high = numbers.min(), numbers.max()
        images = ((numbers - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    return np.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else images


def _tile(images: Array) -> Array:
    """Images [n, h, w, c] in rows of `_GRID`, one pixel apart."""
    count, height, width, channels = images.shape
    columns = min(_GRID, count)
    rows = -(-count // columns)
    sheet = np.full((rows * (height + 1), columns * (width + 1), channels), 255, np.uint8)
    for number, image in enumerate(images):
        top, left = number // columns * (height + 1), number % columns * (width + 1)
        sheet[top : top + height, left : left + width] = image
    return sheet
