"""The command `infeed what`: the samples of a training step and their random draws."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from infeed.batch import Batch
from infeed.cli import RUNS
from infeed.cli.connection import Connection, Target
from infeed.cli.model_options import option, with_models
from infeed.cli.output import new_console, print_json, print_line
from infeed.shared.printable import printable
from infeed_runs.look.batches import read_steps
from infeed_runs.look.run_options import RunName, RunOptions
from infeed_runs.look.slots import Slot, at
from infeed_tools.peek.contact_sheet import write_sheet

_WIDTH = 200
"""Characters of a line outside a terminal; one draw fits into it."""


@dataclass(frozen=True)
class WhatOptions:
    """The options as given."""

    step: int = option(..., "The training step, from 0.", min=0)
    rank: int = option(0, "The rank whose batch to show.", min=0)
    slot: int | None = option(None, "The slot of the batch. Default: all.", min=0)
    png: Path | None = option(
        None, "Also write the images as delivered to this file.", metavar="FILE"
    )
    draws: bool = option(
        True, "Read the samples to show what random transforms drew.", "--draws/--no-draws"
    )


app = typer.Typer()


@app.command(rich_help_panel=RUNS)
@with_models
def what(
    target: Target,
    run: RunName,
    options: WhatOptions,
    run_options: RunOptions,
    connection: Connection,
) -> None:
    """Shows the samples of a past or future training step, and their random draws.

    Everything follows from the step's number: training records nothing.

    \b
    Examples:
      infeed what 127.0.0.1:7470 run.json --step 48123
      infeed what 127.0.0.1:7470 run.json --step 48123 --rank 3 --slot 17 --png seen.png
      infeed what 127.0.0.1:7470 photos@17 --step 0 --no-draws --json
    """
    loaded = run_options.load(run)
    slots = at(
        loaded,
        options.step,
        target,
        rank=options.rank,
        slot=options.slot,
        batch_size=run_options.batch_size,
        world_size=run_options.world_size,
        draws=options.draws,
        timeout=run_options.timeout,
        **connection.arguments(),
    )
    if options.png is not None:
        step, rank = options.step, options.rank
        made = read_steps(target, loaded, (step, step + 1), rank, run_options, connection)
        for _, batch, spec in made:
            shown = batch if options.slot is None else _one(batch, options.slot)
            write_sheet(options.png, shown, spec)
    if run_options.as_json:
        documents = [{**asdict(slot), "key": _hex(slot.key)} for slot in slots]
        print_json({"step": options.step, "rank": options.rank, "slots": documents})
        return
    console = new_console(width=_WIDTH)
    print_line(console, f"step {options.step}, rank {options.rank}, {len(slots)} slots")
    table = Table("slot", "position", "epoch", "sample", "contents", box=SIMPLE_HEAD)
    for slot in slots:
        table.add_row(
            *map(str, (slot.slot, slot.position, slot.epoch)),
            "empty" if slot.sample_id < 0 else str(slot.sample_id),
            Text("\n".join(map(printable, _lines(slot))), overflow="fold"),
        )
    console.print(table)
    if options.png is not None:
        print_line(console, f"images: {options.png}")


def _one(batch: Batch, slot: int) -> Batch:
    return Batch(
        {name: array[slot : slot + 1] for name, array in batch.items()},
        start=batch.start + slot,
        epoch=batch.epoch,
        sample_ids=batch.sample_ids[slot : slot + 1],
        mask=batch.mask[slot : slot + 1],
    )


def _lines(slot: Slot) -> list[str]:
    """Returns a sample's place, fields and key, and what each transform drew for it."""
    place = slot.file if slot.offset is None else f"{slot.file}@{slot.offset}"
    draws = (f"{name}: {_pairs(values)}" for name, values in slot.draws.items())
    lines = (place, _pairs(slot.fields), slot.key and f"key={_hex(slot.key)}", *draws)
    return [line for line in lines if line]


def _hex(key: tuple[int, ...]) -> str:
    return "".join(f"{word:016x}" for word in key)


def _pairs(values: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())
