"""The command `infeed loadtest`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.live import Live

from infeed.cli.connection import Connection, PipelineName, Target
from infeed.cli.loadtest_options import LoadtestOptions
from infeed.cli.model_options import with_models
from infeed.cli.output import write_file
from infeed.shared.errors import InvalidRequestError
from infeed.shared.printable import printable_lines

if TYPE_CHECKING:
    from infeed.loadtest import LoadPlan, Summary, Tally
    from infeed.loadtest.find_max import Search
    from infeed.loadtest.runner import Progress

MISSED_STATUS = 1
"""The exit status of a missed threshold, as of every error; a wrong option has 2."""

INTERRUPTED_STATUS = 130


@with_models
def loadtest(
    target: Target, pipeline: PipelineName, options: LoadtestOptions, connection: Connection
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
    try:
        plan = options.plan()
        for option, path in options.files().items():
            _check_writable(option, path)  # a problem is found before the test, not after it
    except InvalidRequestError as error:
        raise typer.BadParameter(error.message) from None
    if options.html is not None:
        import infeed.loadtest.report_html  # noqa: F401, PLC0415 - so is a package that is missing
    from infeed.loadtest import check, run_load, summarize  # noqa: PLC0415 - only this command
    from infeed.loadtest.find_max import find_max  # noqa: PLC0415

    console, arguments = Console(stderr=True), connection.arguments()

    def run(plan: LoadPlan) -> tuple[Summary, Tally]:
        with _progress(console) as progress:
            tally = run_load(
                *(target, pipeline, plan),
                connection=arguments,
                timeout=options.timeout,
                progress=progress,
            )
        return check(summarize(tally), tally), tally

    search = None
    if options.find_max:
        search, summary, tally = find_max(
            run, plan, lambda probe: console.print(str(probe), highlight=False)
        )
    else:
        summary, tally = run(plan)
    _report(summary, tally, search, options)
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED_STATUS)
    if not summary.ok:
        raise typer.Exit(MISSED_STATUS)


@contextmanager
def _progress(console: Console) -> Iterator[Progress | None]:
    """Shows figures of the last seconds on a terminal, and nothing elsewhere."""
    if not console.is_terminal:
        yield None
        return
    from infeed.loadtest.live import live_table  # noqa: PLC0415

    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda tally: live.update(live_table(tally), refresh=True)


def _report(
    summary: Summary, tally: Tally, search: Search | None, options: LoadtestOptions
) -> None:
    """Prints the report, and then writes the files; raises the first problem after all of them."""
    from infeed.loadtest.report_text import text_report  # noqa: PLC0415
    from infeed.loadtest.summary import to_json  # noqa: PLC0415

    document = to_json(summary, tally)
    if search is not None:
        document["search"] = search.to_json()
    texts = {"--json": json.dumps(document, indent=2) + "\n"}
    if options.output == "-":
        typer.echo(texts["--json"], nl=False)
    else:
        typer.echo(printable_lines(text_report(summary, tally)), nl=False)
        if search is not None:
            typer.echo(str(search))
    if options.html is not None:
        from infeed.loadtest.report_html import html_report  # noqa: PLC0415

        texts["--html"] = html_report(summary, tally, search)
    problems = []
    for option, path in options.files().items():
        try:
            write_file(option, path, texts[option])
        except InvalidRequestError as problem:
            problems.append(problem)
    if problems:
        raise problems[0]


def _check_writable(option: str, path: Path) -> None:
    """Raises `InvalidRequestError` for a file that cannot be written; leaves none behind."""
    existed = path.exists() or path.is_symlink()
    write_file(option, path, "", mode="a")
    if not existed:
        path.unlink()
