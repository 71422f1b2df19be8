"""The command `infeed loadtest`."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.status import Status

from infeed.cli import LOOK
from infeed.cli.connection import Connection, PipelineName, Target
from infeed.cli.model_options import with_models
from infeed.cli.output import JsonFile, write_file
from infeed.shared.printable import printable_lines
from infeed_tools.loadtest.plan import LoadPlan

if TYPE_CHECKING:
    from infeed_tools.loadtest.runner import Progress
    from infeed_tools.loadtest.summary import Summary
    from infeed_tools.loadtest.tally import Tally

MISSED_STATUS = 1
"""The exit status of a missed threshold, the same as for an error; a wrong option has 2."""

INTERRUPTED_STATUS = 130

_RECENT_CALLS = 7
"""Calls of the progress that its rate covers, three seconds: more are steadier but lag."""


app = typer.Typer()


@app.command(rich_help_panel=LOOK)
@with_models
def loadtest(
    target: Target,
    pipeline: PipelineName,
    plan: LoadPlan,
    connection: Connection,
    find_max: Annotated[
        bool,
        typer.Option(
            "--find-max",
            help="Find the largest number of trainers, up to --trainers, that keeps "
            "--min-utilisation (default: 0.9). Each test lasts --duration.",
        ),
    ] = False,
    output: JsonFile = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write an HTML page of plots here."),
    ] = None,
) -> None:
    """Simulates trainers and measures how well the servers feed them.

    Exit status: 0 if all thresholds were met, no server was lost and delivery was exact; 1 if not,
    or on an error; 2 for a wrong option; 130 after Ctrl-C, with the report so far.

    \b
    Examples:
      infeed loadtest 127.0.0.1:7470 photos --trainers 8 --step-ms 20 --html report.html
      infeed loadtest 127.0.0.1:7470 photos --trainers 8 --min-utilisation 0.9
      infeed loadtest 127.0.0.1:7470 photos --trainers 64 --find-max --duration 10
    """
    if find_max and not (plan.step_ms and plan.steps is None):
        raise typer.BadParameter("--find-max needs --step-ms over 0, and no --steps")
    from infeed_tools.loadtest.find_max import find_max as search_most
    from infeed_tools.loadtest.report import chart_package, html_report, text_report
    from infeed_tools.loadtest.runner import run_load
    from infeed_tools.loadtest.summary import summarize, to_json

    files = {"--html": html, "--json": None if output == "-" else output and Path(output)}
    paths = {option: path for option, path in files.items() if path}
    for option, path in paths.items():
        _check_writable(option, path)  # so that a problem shows before the test, not after
    if html is not None:
        chart_package()
    console, arguments = Console(stderr=True), connection.arguments()

    def run(plan: LoadPlan) -> Summary:
        with console.status("starting") as status:
            progress = _progress(status)
            tally = run_load(target, pipeline, plan, connection=arguments, progress=progress)
            return summarize(tally)

    search = None
    if find_max:
        search, summary = search_most(run, plan, lambda line: console.print(line, highlight=False))
    else:
        summary = run(plan)
    document = {**to_json(summary), **({"search": asdict(search)} if search else {})}
    texts = {"--json": json.dumps(document, indent=2) + "\n"}
    if output == "-":
        typer.echo(texts["--json"], nl=False)
    else:
        typer.echo(printable_lines(text_report(summary, search)), nl=False)
    if html is not None:
        texts["--html"] = html_report(summary, search)
    for option, path in paths.items():
        write_file(option, path, texts[option])
    if summary.tally.interrupted:
        raise typer.Exit(INTERRUPTED_STATUS)
    if not summary.ok:
        raise typer.Exit(MISSED_STATUS)


def _progress(status: Status) -> Progress:
    """Returns a function that shows the last seconds' throughput on a terminal."""
    recent: deque[tuple[float, int]] = deque(maxlen=_RECENT_CALLS)

    def show(tally: Tally) -> None:
        recent.append((time.monotonic(), tally.samples))
        (begin, before), (now, samples) = recent[0], recent[-1]
        rate = (samples - before) / (now - begin) if now > begin else 0.0
        begun = f"{tally.begun} of {len(tally.trainers)} trainers started"
        status.update(f"{now - tally.began_at:.0f} s: {begun}, {rate:,.0f} samples/s")

    return show


def _check_writable(option: str, path: Path) -> None:
    """Raises `InvalidRequestError` if a file cannot be written; leaves none behind."""
    existed = path.exists() or path.is_symlink()
    write_file(option, path, "", mode="a")
    if not existed:
        path.unlink()
