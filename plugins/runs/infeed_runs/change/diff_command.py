"""The command `infeed diff`: the differences between two runs or definitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from infeed.cli import RUNS
from infeed.cli.output import new_console, print_lines
from infeed.shared.printable import printable
from infeed_runs.change.amend_command import steps as parse_steps
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import loading_tensorflow

if TYPE_CHECKING:
    from infeed_runs.change.diff import Difference

_RUN = "A JSON file with a cursor, or 'FILE.yaml[:PIPELINE][@SEED]'."


app = typer.Typer()


@app.command(rich_help_panel=RUNS)
def diff(
    a: Annotated[str, typer.Argument(help=_RUN)],
    b: Annotated[str, typer.Argument(help=_RUN)],
    pipelines: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="File with a cursor's definition; repeatable."),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Steps of the first run to compare. Default: one epoch of the longer run, from "
            "where they diverge, at most a million samples.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Slots of a batch. Default: the definition's.")
    ] = None,
    world_size: Annotated[int | None, typer.Option(min=1, help="Ranks. Default: 1.")] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Compare samples of different sources by file.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Shows which samples, draws and transforms of two runs differ, and why. Decodes nothing.

    Exit status: 0, even if they differ.

    \b
    Examples:
      infeed diff old.yaml:photos new.yaml:photos
      infeed diff pipelines.yaml:photos pipelines.yaml:photos@7 --steps 0:1000
      infeed diff run.json amended.json --pipelines pipelines.yaml
    """
    set_up_logging()
    chosen = None if steps is None else parse_steps(steps)
    with loading_tensorflow():
        from infeed_runs.change.diff import diff as compare
        from infeed_runs.change.sides import DiffOptions

    options = DiffOptions(chosen, batch_size, world_size, names)
    found = compare(a, b, pipelines or [], options)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        _print(found)


def _print(found: Difference) -> None:
    out = new_console()
    if found.identical:
        print_lines(out, "identical: fingerprint, seed, sizes and segments are the same")
        return
    for change in found.changes:
        print_lines(out, str(change))
    count = found.positions
    print_lines(out, f"positions {found.begin} to {found.end - 1}, {found.compared}:")
    for text, number in (("other samples", found.samples), ("other draws", found.draws)):
        print_lines(out, f"  {text}: {number:,} of {count:,} ({number / count:.2%})")
    for text, number in found.reasons.items():
        print_lines(out, f"  because of {text}: {number:,}")
    if not found.first:
        return
    table = Table("position", "step", "rank", "slot", "first", "second", "reason", box=SIMPLE_HEAD)
    for one in found.first:
        sides = [f"{index}: {name}" for index, name in zip(one.samples, one.names, strict=True)]
        cells = (str(one.position), str(one.step), str(one.rank), str(one.slot))
        table.add_row(*(Text(printable(t), overflow="fold") for t in (*cells, *sides, one.reason)))
    out.print(table)
