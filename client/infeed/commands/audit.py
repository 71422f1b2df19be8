"""The command `infeed audit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from infeed import audit as auditing
from infeed.audited import Audit
from infeed.commands.connection import connects
from infeed.errors import InvalidRequestError

NOT_EXACT = 2
"""The exit status; 1 is that of every error."""

_MOST_ROWS = 20


@connects
def audit(
    *,
    connection: dict[str, Any],
    target: Annotated[str, typer.Argument(help="host:port of a server, or several with commas.")],
    pipeline: Annotated[str, typer.Argument(help="The pipeline's name.")],
    epochs: Annotated[int, typer.Option(help="How many to walk.")] = 1,
    world_size: Annotated[
        str, typer.Option(help="Ranks; with --resume-every several, as 3,2,5, taken in turn.")
    ] = "1",
    batch_size: Annotated[int | None, typer.Option(help="Default: the pipeline's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the pipeline's.")] = None,
    remainder: Annotated[
        str, typer.Option(help="'pad', or 'drop': leave out what fills no batch on every rank.")
    ] = "pad",
    resume_every: Annotated[
        int | None, typer.Option(help="Close all ranks after so many steps, go on from a cursor.")
    ] = None,
    quarantine: Annotated[
        list[Path] | None,
        typer.Option(help="A server's quarantine log, for on_error: substitute; may be repeated."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--json", help="Write the result to this file too; '-': to standard output."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the server.")] = 20.0,
) -> None:
    """Walk epochs as so many ranks and count every sample id: seen never, once, or more often.

    Exit status: 0 every sample came exactly once or is accounted for, 1 an error, 2 not exact.
    """
    options = {"batch_size": batch_size, "seed": seed, "timeout": timeout, **connection}
    options |= {"epochs": epochs, "remainder": remainder, "resume_every": resume_every}
    options["world_size"] = _worlds(world_size)
    options["bad_samples"] = _bad_samples(quarantine or [], pipeline)
    with _bar(Console(stderr=True), pipeline) as progress:
        result = auditing.audit(target, pipeline, progress=progress, **options)
    if output != "-":
        _show(result, Console())
    if output is not None:
        _write(result, output)
    if not result.exact:
        raise typer.Exit(NOT_EXACT)


def _worlds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidRequestError(
            f"--world-size {text!r} is no number, and no numbers with commas, such as 3,2,5"
        ) from None


def _bad_samples(logs: list[Path], pipeline: str) -> set[int]:
    """The samples that quarantine logs name as substituted. Raises `InvalidRequestError`."""
    found = set()
    for log in logs:
        try:
            lines = log.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"--quarantine {log}: {error}") from None
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                of = entry["pipeline"], entry["action"]
                sample = int(entry["sample_id"])
            except (ValueError, KeyError, TypeError):
                raise InvalidRequestError(
                    f"--quarantine {log}, line {number}: not an entry of a quarantine log, which "
                    "has pipeline, action and sample_id"
                ) from None
            if of == (pipeline, "substitute"):
                found.add(sample)
    return found


@contextmanager
def _bar(console: Console, pipeline: str) -> Iterator[auditing.Progress | None]:
    """A bar while the walk lasts, where somebody sees it."""
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("audit of {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(pipeline, total=None)

        def walked(positions: int, total: int | None) -> None:
            done = positions if total is None else min(positions, total)
            bars.update(task, completed=done, total=total)

        yield walked


def _write(result: Audit, output: str) -> None:
    text = json.dumps(result.to_json(), indent=2) + "\n"
    if output == "-":
        typer.echo(text, nl=False)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"--json {output}: {error}") from None


def _show(result: Audit, console: Console) -> None:
    spec = result.spec
    worlds = ", ".join(str(run.world_size) for run in result.runs[:_MOST_ROWS])
    more = ", ..." if len(result.runs) > _MOST_ROWS else ""
    walked = f"{result.batches} batches of {result.batch_size} in {result.seconds:.1f} s"
    for line in (
        f"{spec.name} fingerprint {spec.fingerprint}, seed {result.seed}",
        f"{spec.guarantee}; on_error: {spec.on_error}; remainder: {result.remainder}",
        f"{walked}; world size {worlds}{more}",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(_table(result))
    for line in [*result.notes(), *result.findings()]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print("exact" if result.exact else "NOT exact", style="bold", highlight=False)


def _table(result: Audit) -> Table:
    """A row for each epoch; of many, for those first that are not exact."""
    table = Table("epoch", "samples", "0x", "1x", ">1x")
    explained = [kind for kind in ("left_out", "masked", "substituted") if result.total(kind)]
    for kind in (*explained, "lost"):
        table.add_column(kind.replace("_", " "))
    kinds = ("samples", "never", "once", "more", *explained, "lost")
    worst = sorted(result.epochs, key=lambda epoch: epoch.exact)[:_MOST_ROWS]
    for epoch in sorted(worst, key=lambda epoch: epoch.epoch):
        table.add_row(str(epoch.epoch), *(str(getattr(epoch, kind)) for kind in kinds))
    if others := len(result.epochs) - len(worst):
        table.add_row(f"{others} more", *("" for _ in kinds))
    if len(result.epochs) > 1:
        table.add_section()
        table.add_row("all", *(str(result.total(kind)) for kind in kinds))
    return table


__all__ = ["NOT_EXACT", "audit"]
