"""The command `infeed when`: the steps that have a sample."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from infeed.cli import RUNS
from infeed.cli.connection import TIMEOUT, Connection, RunName, Target
from infeed.cli.model_options import option, with_models
from infeed.cli.output import new_console, note_ranks, print_json, print_line
from infeed.run import Run, load_run
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.segment import epoch_at, lineage_to_proto
from infeed.transport import Transport
from infeed.v1 import feed_service_pb2 as service

_MAX_EPOCHS = 10_000

_WIDTH = 100


@dataclass(frozen=True)
class WhenOptions:
    """The options, as they are given."""

    epochs: int | None = option(
        None,
        "Epochs to look at, from the first. Default: those that have begun, and the next one.",
        min=1,
        max=_MAX_EPOCHS,
    )
    world_size: int | None = option(
        None, "Number of ranks, without segments. Default: the cursor's, else 1.", min=1
    )
    batch_size: int | None = option(
        None,
        "Slots of each batch, without segments. Default: the cursor's, else the pipeline's.",
        min=1,
    )
    as_json: bool = option(False, "Print JSON instead of the table.", "--json")
    timeout: float = option(20.0, TIMEOUT, metavar="SECONDS")


app = typer.Typer()


@app.command(rich_help_panel=RUNS)
@with_models
def when(
    target: Target,
    run: RunName,
    sample: Annotated[
        str, typer.Argument(help="Its index, the end of its file's path, or label:VALUE.")
    ],
    options: WhenOptions,
    connection: Connection,
) -> None:
    """Shows every step, rank and slot that had a sample, or will have it.

    \b
    Examples:
      infeed when 127.0.0.1:7470 run.json 1234
      infeed when 127.0.0.1:7470 run.json photos/000123.jpg --epochs 90
      infeed when 127.0.0.1:7470 photos@17 label:cat --world-size 8 --json
    """
    loaded = load_run(run)
    note_ranks(loaded, options.world_size)
    from infeed.rpc.channel import GrpcTransport  # noqa: PLC0415 - other commands do not connect
    from infeed.rpc.credentials import Credentials  # noqa: PLC0415

    arguments = connection.arguments()
    credentials = Credentials(arguments.get("token"), arguments.get("tls"))
    with closing(GrpcTransport(target, credentials)) as transport:
        spec, epochs, found = _find(transport, loaded, sample, options)
    stated = loaded.sizes(0)
    size = options.batch_size or stated[0] or spec.batch_size
    ranks = options.world_size or stated[1] or 1
    documents = [_to_json(loaded, one, size, ranks) for one in found.samples]
    if options.as_json:
        print_json({"epochs": epochs, "samples": documents, "more": found.more})
        return
    console = new_console(_WIDTH)
    for document in documents:
        count = len(document["visits"])
        words = [f"sample {document['sample_id']}", *[document["file"]] * bool(document["file"])]
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


def _find(
    transport: Transport, run: Run, sample: str, options: WhenOptions
) -> tuple[PipelineSpec, int, service.FindSampleResponse]:
    """Returns the run's last pipeline, the number of epochs, and the answer for them."""
    from infeed.prefetch.served_plan import find_pipeline  # noqa: PLC0415 - loads h2

    if run.cursor is None:
        spec = transport.get_pipeline(run.pipeline, options.timeout)
    else:
        fingerprint = run.cursor.fingerprint
        spec = find_pipeline(transport, run.pipeline, fingerprint, options.timeout)
    position = run.cursor.position if run.cursor else 0
    begun = epoch_at(run.lineage or spec.lineage, position, spec.sample_count or 1) + 1
    epochs = options.epochs or min(begun + 1, _MAX_EPOCHS)
    message = service.Run(
        pipeline=spec.name,
        fingerprint=spec.fingerprint,
        seed=run.seed,
        lineage=lineage_to_proto(run.lineage) if run.lineage else None,
    )
    request = service.FindSampleRequest(run=message, sample=sample, epochs=epochs)
    return (
        spec,
        epochs,
        transport.call("FindSample", request, options.timeout),
    )


def _to_json(run: Run, found: service.FoundSample, size: int, ranks: int) -> dict[str, Any]:
    now = run.cursor.position if run.cursor else 0
    visits = []
    for position, epoch in zip(found.positions, found.epochs, strict=True):
        step, rank, slot = place(run, position, size, ranks)
        place_json = {"position": position, "epoch": epoch, "step": step, "rank": rank}
        visits.append({**place_json, "slot": slot, "is_past": position < now})
    names = ("sample_id", "file", "is_removed")
    return {**{name: getattr(found, name) for name in names}, "visits": visits}


def place(run: Run, position: int, batch_size: int, world_size: int) -> tuple[int, int, int]:
    """Returns the step, rank and slot that have a position: the inverse of `Run.position`. The
    sizes are for a run without segments, whose steps before its last change of sizes are
    negative."""
    step, stride = 0, batch_size * world_size
    first = run.cursor.position % stride if run.cursor else 0
    for segment in run.lineage:
        if segment.start <= position:
            step, first = segment.step, segment.start
            batch_size, stride = segment.batch_size, segment.global_stride
    steps, rest = divmod(position - first, stride)
    return step + steps, *divmod(rest, batch_size)
