"""The command `infeed amend`: a run continued with another definition, seed or batch size."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from infeed.cli import RUNS
from infeed.cli.model_options import option, with_models
from infeed.cli.output import new_console, print_line, write_file
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import loading_tensorflow


def steps(text: str) -> tuple[int, int]:
    """Parses `A:B`. Raises `typer.BadParameter`."""
    found = re.fullmatch(r"(\d{1,18}):(\d{1,18})", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise typer.BadParameter(f"{text!r}: give the first step and the end, such as 100:200")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class Sizes:
    """The options for sizes and seed."""

    batch_size: int | None = option(None, "New number of slots in a batch. Default: unchanged.")
    world_size: int | None = option(None, "New number of ranks. Default: unchanged.")
    seed: int | None = option(None, "New seed. Default: unchanged.")


@dataclass(frozen=True)
class Result:
    """The options for the files that are written."""

    out: Path | None = option(None, "File to write the new cursor to.", metavar="FILE")
    yes: bool = option(False, "Replace RUN's file, if --out is not given.")
    never: Path | None = option(
        None,
        "Also write the skipped samples' ids to this file, for the definition's remove.",
        metavar="FILE",
    )


app = typer.Typer()


@app.command(rich_help_panel=RUNS)
@with_models
def amend(
    run: Annotated[str, typer.Argument(help="JSON file with a cursor, from Feed.state().")],
    step: Annotated[
        int,
        typer.Option(
            "--from",
            min=0,
            help="First step of the new segment. If the order or the samples change, an epoch must "
            "begin there.",
        ),
    ],
    file: Annotated[str, typer.Argument(help="YAML file, or module:attr in Python.")],
    sizes: Sizes,
    result: Result,
    pipeline: Annotated[
        str | None, typer.Option(help="Name of the pipeline. Default: the run's, or the only one.")
    ] = None,
    was: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File of the old definition, if it is another file."),
    ] = None,
    skip: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Skip the steps from A up to but not including B."),
    ] = None,
) -> None:
    """Continues a run from a step with another definition, seed or batch size.

    Prints what changes: samples, order, transforms, and where epochs end. Writes only with --out or
    --yes. Refuses a step within an epoch, and any change that loses, repeats or changes samples.

    \b
    Examples:
      infeed amend run.json --from 4000 pipelines.yaml
      infeed amend run.json --from 4000 pipelines.yaml --out amended.json
      infeed amend run.json --from 4000 pipelines.yaml --skip 4000:4200 --yes
    """
    set_up_logging()
    skipped = None if skip is None else steps(skip)
    with loading_tensorflow():
        from infeed_runs.change.amend import AmendOptions
        from infeed_runs.change.amend import amend as make

    options = AmendOptions(**vars(sizes), skip=skipped)
    made = make(run, step, file, pipeline=pipeline, was=was, options=options)
    out = new_console()
    for line in made.text:
        print_line(out, line)
    if result.never is not None:
        write_file("--never", result.never, "".join(f"{index}\n" for index in made.skipped))
        print_line(
            out, f"{result.never}: {len(made.skipped)} ids; name it in remove, then amend again"
        )
    target = result.out or (_replaced(Path(run)) if result.yes else None)
    if target is None:
        print_line(out, "nothing was written; give --out FILE, or --yes to replace the run's file")
        return
    write_file("--out", target, json.dumps(made.to_json(), indent=2) + "\n")
    print_line(out, f"{target}: written")


def _replaced(path: Path) -> Path:
    """Returns the file of a run if it contains only a cursor. Raises `typer.BadParameter`."""
    if "pipeline" not in json.loads(path.read_text(encoding="utf-8")):
        raise typer.BadParameter(f"{path} contains more than a cursor; give --out FILE")
    return path
