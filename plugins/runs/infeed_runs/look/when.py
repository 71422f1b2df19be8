"""The command `infeed when`: the steps that contain a sample."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from infeed.cli import RUNS
from infeed.cli.connection import Connection, Target
from infeed.cli.model_options import option, with_models
from infeed.cli.output import new_console, print_json, print_line
from infeed.rpc.channel import open_transport
from infeed.run import Run
from infeed.shared.spec import PipelineSpec, parts_of
from infeed.shared.spec.segment import epoch_at
from infeed.v1 import feed_service_pb2 as service
from infeed_runs.look.run_options import RunName, RunOptions
from infeed_runs.look.slots import MAX_EPOCHS, served_run

_WIDTH = 100


@dataclass(frozen=True)
class WhenOptions:
    """The options as given."""

    epochs: int | None = option(
        None,
        "Number of epochs to search, from the first. Default: those begun so far and the next.",
        min=1,
        max=MAX_EPOCHS,
    )


app = typer.Typer()


@app.command(rich_help_panel=RUNS)
@with_models
def when(
    target: Target,
    run: RunName,
    sample: Annotated[
        str, typer.Argument(help="The sample's index, the end of its path, or label:VALUE.")
    ],
    options: WhenOptions,
    run_options: RunOptions,
    connection: Connection,
) -> None:
    """Shows every past and future step, rank and slot of a sample.

    \b
    Examples:
      infeed when 127.0.0.1:7470 run.json 1234
      infeed when 127.0.0.1:7470 run.json photos/000123.jpg --epochs 90
      infeed when 127.0.0.1:7470 photos@17 label:cat --world-size 8 --json
    """
    loaded = run_options.load(run)
    security = connection.arguments()
    transport = open_transport(target, security.get("token"), security.get("tls"), None)
    with closing(transport):
        spec, message = served_run(transport, loaded, run_options.timeout)
        epochs = options.epochs or _epochs(loaded, spec)
        request = service.FindSampleRequest(run=message, sample=sample, epochs=epochs)
        found = transport.call("FindSample", request, run_options.timeout)
    stated = loaded.sizes(0)
    size = run_options.batch_size or stated[0] or spec.batch_size
    ranks = run_options.world_size or stated[1] or 1
    parts = parts_of(spec.parts, np.array([one.sample_id for one in found.samples], np.int64))
    documents = [
        {"part": part, **_to_json(loaded, one, size, ranks)}
        for part, one in zip(parts.tolist(), found.samples, strict=True)
    ]
    _note_earlier_steps(loaded)
    if run_options.as_json:
        print_json({"epochs": epochs, "samples": documents, "more": found.more})
        return
    console = new_console(width=_WIDTH)
    for document in documents:
        count = len(document["visits"])
        words = [f"sample {document['sample_id']}", *[document["file"]] * bool(document["file"])]
        words += [f"part {document['part']}"] * bool(document["part"])
        words += ["removed"] * document["is_removed"]
        print_line(console, f"{', '.join(words)}: {count} slots in {epochs} epochs")
        table = Table("step", "rank", "slot", "epoch", "position", "", box=SIMPLE_HEAD)
        for visit in document["visits"]:
            numbers = [visit[name] for name in ("step", "rank", "slot", "epoch", "position")]
            table.add_row(*map(str, numbers), "past" if visit["is_past"] else "to come")
        if count:
            console.print(table)
    if found.more:
        print_line(console, "more samples match: give more of the path, or fewer epochs")


def _epochs(run: Run, spec: PipelineSpec) -> int:
    """Returns the number of epochs begun so far, plus one."""
    position = run.cursor.position if run.cursor else 0
    last = epoch_at(run.lineage or spec.lineage, position, spec.sample_count or 1)
    return min(last + 2, MAX_EPOCHS)


def _to_json(run: Run, found: service.FoundSample, size: int, ranks: int) -> dict[str, Any]:
    now = run.cursor.position if run.cursor else 0
    visits = []
    for position, epoch in zip(found.positions, found.epochs, strict=True):
        if (at := place(run, position, size, ranks)) is not None:
            step, rank, slot = at
            place_json = {"position": position, "epoch": epoch, "step": step, "rank": rank}
            visits.append({**place_json, "slot": slot, "is_past": position < now})
    names = ("sample_id", "file", "is_removed")
    return {**{name: getattr(found, name) for name in names}, "visits": visits}


def place(run: Run, position: int, batch_size: int, world_size: int) -> tuple[int, int, int] | None:
    """Returns the step, rank and slot of a position; None if it is in no step, or in one that the
    cursor does not record. The sizes are for a run that does not state them."""
    if (found := run.place(position, batch_size * world_size)) is None:
        return None
    return found[0], *divmod(found[1], run.sizes(found[0])[0] or batch_size)


def _note_earlier_steps(run: Run) -> None:
    """Prints on standard error that the steps before a change of sizes are not shown."""
    if run.cursor is None or run.cursor.course is None:
        return
    course, first = run.cursor.course, run.lineage[-1].step if run.lineage else 0
    if course.step > first:
        typer.echo(
            f"note: steps {first} to {course.step - 1} are not shown, as their batch size, world "
            "size or passes differ; give a cursor from before the change",
            err=True,
        )
