"""The command `infeed peek`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import infeed
from infeed.batch import Batch
from infeed.cli import LOOK
from infeed.cli.connection import SEED, TIMEOUT, Connection, PipelineName
from infeed.cli.model_options import option, with_models
from infeed.cli.output import print_json, print_line, spec_to_json
from infeed.shared.printable import printable
from infeed.shared.spec import BYTES, PipelineSpec
from infeed_tools.peek.contact_sheet import label_text, row_count, write_sheet

_MAX_SAMPLE_IDS = 16

_MAX_STEP = 1 << 40
"""Largest step: with any batch size, its position in a cursor is below 2^63."""


@dataclass(frozen=True)
class PeekOptions:
    """The options of the command line."""

    batch_size: int | None = option(None, "Slots of a batch. Default: the pipeline's.")
    seed: int | None = option(None, SEED)
    step: int = option(0, "Step whose batch to show.", min=0, max=_MAX_STEP)
    as_json: bool = option(False, "Print JSON instead of the table.", "--json")
    png: Path | None = option(
        None,
        "Also write the images to this PNG, each with its targets, sample id, label and position.",
        metavar="FILE",
    )
    timeout: float = option(20.0, TIMEOUT, metavar="SECONDS")


app = typer.Typer()


@app.command(rich_help_panel=LOOK)
@with_models
def peek(
    target: Annotated[str, typer.Argument(help="Address of a server, host:port.")],
    pipeline: PipelineName,
    options: PeekOptions,
    connection: Connection,
) -> None:
    """Shows a batch's specs, value ranges and sample ids.

    \b
    Examples:
      infeed peek 127.0.0.1:7470 photos
      infeed peek 127.0.0.1:7470 photos --step 100 --png photos.png
      infeed peek 127.0.0.1:7470 photos --json
    """
    open_feed = partial(
        infeed.connect,
        target,
        pipeline,
        batch_size=options.batch_size,
        seed=options.seed,
        timeout=options.timeout,
        shard=infeed.Shard(),
        **connection.arguments(),
    )
    with open_feed() as feed:
        state = feed.state()
    state["position"] = options.step * feed.spec.stride(feed.batch_size)
    with open_feed(state=state) as feed:
        batch = feed.next(timeout=max(options.timeout, 60.0))
    if options.png is not None:
        write_sheet(options.png, batch, feed.spec)
    document = _to_json(feed, batch)
    if options.as_json:
        print_json(document)
        return
    console = Console()
    _print(console, feed.spec, document)
    if options.png is not None:
        print_line(console, f"images: {options.png}")


def _print(console: Console, spec: PipelineSpec, document: dict[str, Any]) -> None:
    pipeline, batch = document["pipeline"], document["batch"]
    table = Table("field", "data type", "shape", "on the wire", "min", "max", "mean")
    for field in pipeline["fields"]:
        unit = " bytes" if field["data_type"] == BYTES else ""
        values = (field[name] for name in ("min", "max", "mean"))
        table.add_row(
            Text(printable(field["name"])),
            field["data_type"],
            str([batch["slots"], *field["shape"]]),
            field["sent_as"] or "?",
            *("not finite" if value is None else f"{value:.6g}{unit}" for value in values),
        )
    for line in (
        f"{spec.name} fingerprint {spec.fingerprint}",
        f"{spec.sample_count or 'unknown'} samples; {spec.guarantee}",
        f"server {spec.server_version}, {pipeline['engine']} engine",
        f"finish transforms: {', '.join(pipeline['finish_transforms']) or 'none'}",
    ):
        print_line(console, line)
    console.print(table)
    ids = ", ".join(map(str, batch["sample_ids"][:_MAX_SAMPLE_IDS]))
    more = ", ..." if batch["slots"] > _MAX_SAMPLE_IDS else ""
    print_line(console, f"start {batch['start']}, epoch {batch['epoch']}, sample ids {ids}{more}")
    for name, names in batch["classes"].items():
        print_line(console, f"{name}: {', '.join(names[:_MAX_SAMPLE_IDS])}{more}")


def _to_json(feed: infeed.Feed, batch: Batch) -> dict[str, Any]:
    document = spec_to_json(feed.spec)
    # The zeros in empty slots belong to no sample.
    slots = batch.mask if batch.mask.any() else slice(None)
    for field in document["fields"]:
        values = batch[field["name"]][slots]
        if field["data_type"] == BYTES:
            values = np.array([len(value) for value in values.reshape(-1)])
        numbers = values.astype(np.float64)
        range_ = {"min": numbers.min(), "max": numbers.max(), "mean": numbers.mean()}
        field |= {
            name: float(value) if np.isfinite(value) else None for name, value in range_.items()
        }
    batch_json = {
        "start": batch.start,
        "epoch": batch.epoch,
        "slots": batch.slots,
        "sample_ids": batch.sample_ids.tolist(),
        "mask": batch.mask.tolist(),
        "classes": {
            name: [
                label_text(value, names, row_count(batch, feed.spec, name, slot))
                if is_filled
                else "empty"
                for slot, (value, is_filled) in enumerate(zip(batch[name], batch.mask, strict=True))
            ]
            for name, names in feed.classes.items()
        },
    }
    return {"pipeline": document, "batch": batch_json}
