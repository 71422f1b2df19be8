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
from infeed.cli.connection import with_connection_options
from infeed.errors import InvalidRequestError, MissingExtraError
from infeed.spec import BYTES, Array, FieldSpec

_IMAGES_PER_ROW = 8

_MAX_IMAGES = 64
"""Images in the PNG; of a larger batch the first."""

_MAX_SAMPLE_IDS = 16


@with_connection_options
def peek(
    *,
    connection: dict[str, Any],
    target: Annotated[str, typer.Argument(help="host:port of a server.")],
    pipeline: Annotated[str, typer.Argument(help="The pipeline's name.")],
    batch_size: Annotated[
        int | None, typer.Option(help="Slots of the batch. Default: the pipeline's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the order. Default: the pipeline's.")
    ] = None,
    step: Annotated[int, typer.Option(min=0, help="The step whose batch is shown.")] = 0,
    png: Annotated[Path | None, typer.Option(help="Also write the images to this file.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for a server that is starting.")
    ] = 20.0,
) -> None:
    """Shows the specs, value ranges and sample ids of a batch."""
    console = Console()
    options = {"batch_size": batch_size, "seed": seed, "timeout": timeout, **connection}
    with infeed.connect(target, pipeline, **options) as feed:
        state = feed.state()
    state["position"] = step * feed.spec.stride(feed.batch_size)
    with infeed.connect(target, pipeline, **options, state=state) as feed:
        batch = feed.next(timeout=max(timeout, 60.0))
        _print(console, feed, batch)
    if png is not None:
        _write_png(batch, feed.element_spec, png)
        console.print(f"images: {png}")


def _print(console: Console, feed: infeed.Feed, batch: Batch) -> None:
    spec = feed.spec
    console.print(f"[bold]{spec.name}[/] fingerprint {spec.fingerprint}", highlight=False)
    console.print(
        f"{spec.sample_count or 'unknown'} samples; {spec.guarantee}; "
        f"server {spec.server_version}, {spec.engine.replace('_', '-')} engine",
        highlight=False,
    )
    finish = ", ".join(str(transform) for transform in spec.finish_transforms) or "none"
    console.print(f"finish transforms: {finish}", highlight=False, markup=False)
    table = Table("field", "data type", "shape", "on the wire", "min", "max", "mean")
    wire_types = {field.name: field.data_type for field in spec.wire_spec}
    for field in spec.element_spec:
        wire_type = wire_types.get(field.name, "?")
        values = _value_range(field, batch[field.name])
        shape = str(list(batch[field.name].shape))
        table.add_row(field.name, field.data_type, shape, wire_type, *values)
    console.print(table)
    ids = ", ".join(map(str, batch.sample_ids[:_MAX_SAMPLE_IDS].tolist()))
    more = ", ..." if len(batch.sample_ids) > _MAX_SAMPLE_IDS else ""
    console.print(
        f"start {batch.start}, epoch {batch.epoch}, sample ids {ids}{more}", highlight=False
    )


def _value_range(field: FieldSpec, values: Array) -> tuple[str, str, str]:
    if field.data_type == BYTES:
        lengths = [len(item) for item in values.reshape(-1)]
        return f"{min(lengths)} bytes", f"{max(lengths)} bytes", f"{np.mean(lengths):.1f} bytes"
    numbers = values.astype(np.float64)
    return f"{numbers.min():.6g}", f"{numbers.max():.6g}", f"{numbers.mean():.6g}"


def _write_png(batch: Batch, fields: tuple[FieldSpec, ...], file: Path) -> None:
    try:
        from PIL import Image  # noqa: PLC0415 - only --png needs it
    except ImportError:
        raise MissingExtraError("--png needs Pillow: pip install 'infeed[cli]'") from None
    images = [field for field in fields if len(field.shape) == 3 and field.shape[-1] in (1, 3, 4)]
    if not images:
        listed = ", ".join(map(str, fields))
        raise InvalidRequestError(f"no field has images of 1, 3 or 4 channels; fields: {listed}")
    pixels = _to_uint8(batch[images[0].name][:_MAX_IMAGES])
    Image.fromarray(_tile(pixels)).save(file)


def _to_uint8(images: Array) -> Array:
    """Scales numbers other than uint8 to 0-255, and repeats a single channel three times."""
    if images.dtype != np.uint8:
        numbers = images.astype(np.float64)
        low, high = numbers.min(), numbers.max()
        images = ((numbers - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    return np.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else images


def _tile(images: Array) -> Array:
    """Arranges images [n, h, w, c] in a grid, one pixel apart."""
    count, height, width, channels = images.shape
    columns = min(_IMAGES_PER_ROW, count)
    rows = -(-count // columns)
    sheet = np.full((rows * (height + 1), columns * (width + 1), channels), 255, np.uint8)
    for number, image in enumerate(images):
        top, left = number // columns * (height + 1), number % columns * (width + 1)
        sheet[top : top + height, left : left + width] = image
    return sheet
