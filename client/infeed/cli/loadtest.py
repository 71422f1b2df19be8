"""The command `infeed loadtest`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infeed.cli.connection import Timeout, with_connection_options
from infeed.cli.files import problem_of
from infeed.cli.loadtest_runs import Runs
from infeed.shared.errors import InvalidRequestError
from infeed.shared.printable import printable_lines

if TYPE_CHECKING:
    from infeed.loadtest import Summary, Tally
    from infeed.loadtest.find_max import Search

MISSED_STATUS = 1
"""The exit status of a missed threshold, as of every error; a wrong option has 2."""

INTERRUPTED_STATUS = 130

_EXIT = "Thresholds"
_FAULTS = "Faults"


@with_connection_options
def loadtest(
    *,
    connection: dict[str, Any],
    target: Annotated[
        str, typer.Argument(help="host:port of a server, or several, separated by commas.")
    ],
    pipeline: Annotated[str, typer.Argument(help="The pipeline's name.")],
    trainers: Annotated[int, typer.Option("--trainers", "-n", help="Simulated trainers.")] = 4,
    step_ms: Annotated[
        float, typer.Option(metavar="MS", help="Milliseconds of a training step without its wait.")
    ] = 50.0,
    independent: Annotated[
        bool,
        typer.Option(
            "--independent",
            help="Each trainer is a job of its own, with a seed of its own. Default: ranks of one "
            "job.",
        ),
    ] = False,
    threads: Annotated[
        bool, typer.Option("--threads", help="Run trainers as threads. Default: as processes.")
    ] = False,
    ramp: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds between the starts of two trainers.")
    ] = 0.0,
    duration: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Seconds from the first batch of the last trainer to the end."
        ),
    ] = 30.0,
    steps: Annotated[
        int | None, typer.Option(help="Steps of each trainer, instead of the duration.")
    ] = None,
    warm_up: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds that no figure covers at first. Default: a tenth of the duration.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Slots of each batch of a trainer. Default: the pipeline's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the order. Default: the pipeline's.")
    ] = None,
    prefetch_batches: Annotated[
        int | None, typer.Option(help="Batches that a trainer prefetches. Default: as 'connect'.")
    ] = None,
    rtt_ms: Annotated[
        float,
        typer.Option(
            metavar="MS", help="Milliseconds to add to the round trip.", rich_help_panel=_FAULTS
        ),
    ] = 0.0,
    jitter_ms: Annotated[
        float,
        typer.Option(
            metavar="MS",
            help="Random milliseconds to add to it, from 0 to this.",
            rich_help_panel=_FAULTS,
        ),
    ] = 0.0,
    stall: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RANK@SECOND:SECONDS",
            help="A trainer that makes no step for some time; can be repeated.",
            rich_help_panel=_FAULTS,
        ),
    ] = None,
    kill: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RANK@SECOND",
            help="A trainer that is killed and resumes from its cursor; can be repeated.",
            rich_help_panel=_FAULTS,
        ),
    ] = None,
    min_utilisation: Annotated[
        float | None,
        typer.Option(
            help="Least accelerator utilisation of the worst trainer, such as 0.9.",
            rich_help_panel=_EXIT,
        ),
    ] = None,
    max_wait_p99_ms: Annotated[
        float | None,
        typer.Option(help="Largest p99 of a trainer's waits.", rich_help_panel=_EXIT),
    ] = None,
    min_samples_per_second: Annotated[
        float | None,
        typer.Option(help="Least throughput of all trainers.", rich_help_panel=_EXIT),
    ] = None,
    allow_lost_servers: Annotated[
        bool,
        typer.Option(
            "--allow-lost-servers",
            help="Servers may go during the test; without it, the loss of one is a failure.",
            rich_help_panel=_EXIT,
        ),
    ] = False,
    find_max: Annotated[
        bool,
        typer.Option(
            "--find-max",
            help="Search the number of trainers, from 1 up to --trainers, that keeps "
            "--min-utilisation, or 0.9. Each test has the duration.",
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Also write the result to this file; with '-' only to standard output, instead of "
            "the text.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page with plots to this file."),
    ] = None,
    timeout: Timeout = 20.0,
) -> None:
    """Simulates trainers, and measures how well the servers feed them.

    Exit status: 0 if every threshold is kept, no server was lost and the delivery was exact, 1 if
    not, or on an error,
    2 for a wrong option, 130 after Ctrl-C, with the report so far.

    \b
    Examples:
      infeed loadtest 127.0.0.1:7470 photos --trainers 8 --step-ms 20 --html report.html
      infeed loadtest 127.0.0.1:7470 photos --rtt-ms 20 --kill 2@10 --min-utilisation 0.9
      infeed loadtest 127.0.0.1:7470 photos --trainers 64 --find-max --duration 10
    """
    from infeed.loadtest.plan import Kill, LoadPlan, Stall, Thresholds  # noqa: PLC0415

    try:
        plan = LoadPlan(
            trainers=trainers,
            step_seconds=step_ms / 1000,
            independent=independent,
            threads=threads,
            ramp_seconds=ramp,
            duration_seconds=duration,
            steps=steps,
            warm_up_seconds=warm_up,
            rtt_seconds=rtt_ms / 1000,
            jitter_seconds=jitter_ms / 1000,
            batch_size=batch_size,
            seed=seed,
            prefetch_batches=prefetch_batches,
            stalls=tuple(map(Stall.parse, stall or [])),
            kills=tuple(map(Kill.parse, kill or [])),
            thresholds=Thresholds(
                min_utilisation,
                None if max_wait_p99_ms is None else max_wait_p99_ms / 1000,
                min_samples_per_second,
                allow_lost_servers=allow_lost_servers,
            ),
        )
        if find_max and not (step_ms and steps is None):
            raise InvalidRequestError("--find-max needs --step-ms over 0, and no --steps")
        for path in (html, Path(output) if output not in (None, "-") else None):
            if path is not None:
                _check_writable(path)  # a problem is found before the test, not after it
    except InvalidRequestError as error:
        raise typer.BadParameter(error.message) from None
    runs = Runs(target, pipeline, connection, timeout)
    if find_max:
        search, summary, tally = runs.search(plan)
    else:
        search = None
        summary, tally = runs.run(plan)
    _report(summary, tally, search, output, html)
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED_STATUS)
    if not summary.ok:
        raise typer.Exit(MISSED_STATUS)


def _report(
    summary: Summary, tally: Tally, search: Search | None, output: str | None, html: Path | None
) -> None:
    """Prints the report, and then writes the files; raises the first problem after all of them."""
    from infeed.loadtest.report_html import html_report  # noqa: PLC0415
    from infeed.loadtest.report_text import text_report  # noqa: PLC0415
    from infeed.loadtest.summary import to_json  # noqa: PLC0415

    document = to_json(summary, tally)
    if search is not None:
        document["search"] = search.to_json()
    text = json.dumps(document, indent=2) + "\n"
    if output == "-":
        typer.echo(text, nl=False)
    else:
        typer.echo(printable_lines(text_report(summary, tally)), nl=False)
        if search is not None:
            typer.echo(str(search))
    problems = []
    if output not in (None, "-"):
        problems.append(_write(Path(output), text))
    if html is not None:
        problems.append(_write(html, html_report(summary, tally, search)))
    for problem in filter(None, problems):
        raise problem


def _check_writable(path: Path) -> None:
    """Raises `InvalidRequestError` for a file that cannot be written; leaves none behind."""
    existed = path.exists() or path.is_symlink()
    if problem := _write(path, "", mode="a"):
        raise problem
    if not existed:
        path.unlink()


def _write(path: Path, text: str, mode: str = "w") -> InvalidRequestError | None:
    """Writes a file; returns the error that names what prevents it."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return InvalidRequestError(f"{path}: {problem_of(error)}")
    return None
