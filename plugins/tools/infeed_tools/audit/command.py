"""The command `infeed audit`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from infeed.cli import LOOK
from infeed.cli.connection import SEED, TIMEOUT, Connection, PipelineName, Target
from infeed.cli.model_options import option, with_models
from infeed.cli.output import JsonFile, print_line, problem_of, write_file
from infeed.shared.errors import InvalidRequestError
from infeed.shared.printable import printable

if TYPE_CHECKING:
    from infeed_tools.audit.report import AuditReport

NOT_EXACT_STATUS = 2
"""The exit status of an inexact audit; an error has 1."""

_MAX_ROWS = 20
"""Epochs shown in the table: more would not fit on a screen; --json contains all."""


@dataclass(frozen=True)
class AuditOptions:
    """The options of the command line."""

    epochs: int = option(1, "Number of epochs to read, also of an endless pipeline.")
    world_size: str = option(
        "1", "Number of ranks; with --resume-every also several, such as 3,2,5, used in turn."
    )
    batch_size: int | None = option(None, "Slots of a batch. Default: the pipeline's.")
    seed: int | None = option(None, SEED)
    remainder: str = option(
        "pad",
        "'drop' omits the last samples, too few for a batch on every rank, as most training "
        "does; 'pad' reads them.",
    )
    resume_every: int | None = option(
        None,
        "Steps after which all ranks close and new ones resume from the saved cursor. Default: "
        "never.",
    )
    quarantine: list[Path] | None = option(
        None,
        "Quarantine log of a server, for 'on_error: substitute'; repeat for each server.",
        metavar="FILE",
    )
    output: JsonFile = None
    timeout: float = option(20.0, TIMEOUT, metavar="SECONDS")


app = typer.Typer()


@app.command(rich_help_panel=LOOK)
@with_models
def audit(
    target: Target, pipeline: PipelineName, options: AuditOptions, connection: Connection
) -> None:
    """Reads epochs as several ranks, and counts how often each sample is delivered.

    Exit status: 0 if every sample is delivered exactly once or is accounted for, 1 on an error,
    2 if not exact.

    \b
    Examples:
      infeed audit 127.0.0.1:7470 photos
      infeed audit 127.0.0.1:7470 photos --world-size 3,2,5 --resume-every 100
      infeed audit 127.0.0.1:7470 photos --json -
    """
    from infeed_tools.audit.run import audit as run_audit

    same = ("batch_size", "seed", "timeout", "epochs", "remainder", "resume_every")
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"audit of {printable(pipeline)}", total=None)
        report = run_audit(
            target,
            pipeline,
            world_size=_world_sizes(options.world_size),
            bad_samples=_substituted_samples(options.quarantine or [], pipeline),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            **{name: getattr(options, name) for name in same},
            **connection.arguments(),
        )
    text = json.dumps(report.to_json(), indent=2) + "\n"
    if options.output == "-":
        typer.echo(text, nl=False)
    else:
        _print(report, Console())
        if options.output is not None:
            write_file("--json", Path(options.output), text)
    if not report.exact:
        raise typer.Exit(NOT_EXACT_STATUS)


def _world_sizes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidRequestError(
            f"--world-size {text!r} is not a number; give one, or several separated by commas "
            "such as 3,2,5"
        ) from None


def _substituted_samples(logs: list[Path], pipeline: str) -> set[int]:
    """Returns the samples that quarantine logs list as substituted."""
    samples = set()
    for log in logs:
        try:
            for line in log.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if (entry["pipeline"], entry["action"]) == (pipeline, "substitute"):
                    samples.add(int(entry["sample_id"]))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"--quarantine {log}: {problem_of(error)}") from None
        except (ValueError, KeyError, TypeError):
            raise InvalidRequestError(
                f"--quarantine {log}: {line!r} is not an entry of a quarantine log, with "
                "pipeline, action and sample_id; give the log that a server wrote"
            ) from None
    return samples


def _print(report: AuditReport, console: Console) -> None:
    spec = report.spec
    sizes = ", ".join(str(run.world_size) for run in report.runs[:_MAX_ROWS])
    more = ", ..." if len(report.runs) > _MAX_ROWS else ""
    batches = f"{report.batches} batches of {report.batch_size} in {report.seconds:.1f} s"
    print_line(console, f"{spec.name} fingerprint {spec.fingerprint}, seed {report.seed}")
    line = f"{spec.guarantee}; on_error: {spec.on_error}; remainder: {report.remainder}"
    print_line(console, line)
    print_line(console, f"{batches}; world size {sizes}{more}")
    explained = [name for name in ("left_out", "masked", "substituted") if report.total(name)]
    names = ("samples", "never", "once", "more", *explained, "lost")
    heads = ("samples", "0x", "1x", ">1x", *(name.replace("_", " ") for name in explained), "lost")
    table = Table("epoch", *heads)
    # If there are too many epochs, the inexact ones come first.
    shown = sorted(report.epochs, key=lambda epoch: epoch.exact)[:_MAX_ROWS]
    for epoch in sorted(shown, key=lambda epoch: epoch.epoch):
        table.add_row(str(epoch.epoch), *(str(getattr(epoch, name)) for name in names))
    if hidden := len(report.epochs) - len(shown):
        table.add_row(f"{hidden} more")
    if len(report.epochs) > 1:
        table.add_section()
        table.add_row("all", *(str(report.total(name)) for name in names))
    console.print(table)
    if report.outcome.parts:
        parts = Table("part", "samples", "slots", "seen at least", "at most")
        for part in report.outcome.parts:
            counts = (part.samples, part.slots, part.least, part.most)
            parts.add_row(part.name, *map(str, counts))
        console.print(parts)
    for line in [*report.notes(), *report.findings()]:
        print_line(console, line)
    console.print("exact" if report.exact else "NOT exact", style="bold", highlight=False)
