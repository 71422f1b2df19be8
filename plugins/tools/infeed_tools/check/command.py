"""The command `infeed check`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infeed.cli import PREPARE
from infeed.cli.model_options import option, with_models
from infeed.shared.printable import printable_lines
from infeed_server.cli.console import console, index_progress, sample_progress
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow, load_tensorflow
from infeed_server.storage.files import abbreviate

if TYPE_CHECKING:
    from infeed_server.config.document import Problem
    from infeed_server.pipeline.load import FilePipelines
    from infeed_tools.check.report import PipelineReport

PROBLEMS_STATUS = 1
"""The exit status if there is a problem; a wrong option has 2."""

UNREADABLE_STATUS = 2
"""The exit status for a missing or unreadable file."""

_MAX_CLASSES = 10

_SCAN: dict[str, Any] = {"rich_help_panel": "Scan"}


@dataclass(frozen=True)
class ScanOptions:
    """The options of `--scan`."""

    pipeline: list[str] | None = option(
        None, "Name of a pipeline to scan; repeatable. Default: all.", **_SCAN
    )
    limit: int | None = option(
        None, "Samples to scan in each pipeline. Default: all.", min=1, **_SCAN
    )
    show: int = option(10, "Bad samples to list for each pipeline.", min=0, **_SCAN)
    max_bad: float = option(
        0.0,
        "Bad samples to tolerate in a pipeline, as 'on_error: substitute' does: a number such "
        "as 5, or below 1 a share of the samples such as 0.02.",
        min=0,
        **_SCAN,
    )

    def accepts(self, report: PipelineReport) -> bool:
        """Returns whether a pipeline has no more bad samples than `max_bad` allows."""
        samples = 1 if self.max_bad >= 1 else report.scanned
        return report.bad_samples <= self.max_bad * samples


app = typer.Typer()


@app.command(rich_help_panel=PREPARE)
@with_models
def check(
    file: Annotated[Path, typer.Argument(help="YAML file of pipelines.")],
    options: ScanOptions,
    scan: Annotated[
        bool, typer.Option("--scan", help="Also read and transform every sample.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Checks a file of pipelines, and with --scan every sample of their data.

    It reports mistakes with their lines. If there are none, it opens each pipeline and makes its
    first batch with the server's own code.

    Exit status: 0 without problems, 1 with problems, 2 for a wrong option or an unreadable file.

    \b
    Examples:
      infeed check pipelines.yaml
      infeed check pipelines.yaml --scan
      infeed check pipelines.yaml --scan --limit 1000 --json
    """
    set_up_logging()
    defer_tensorflow()
    from infeed_server.pipeline.load import parse_yaml
    from infeed_server.processes.signals import exit_after_interrupt
    from infeed_tools.check.definitions import file_problems, order_notes

    started = time.monotonic()
    pipelines = parse_yaml(str(file))
    problems = file_problems(pipelines)
    names = options.pipeline or list(pipelines)
    unknown = [name for name in names if name not in pipelines]
    if unknown and not pipelines.problems:
        raise typer.BadParameter(
            f"{unknown[0]!r}: no such pipeline; the file has: {', '.join(pipelines)}",
            param_hint="--pipeline",
        )
    reports: list[PipelineReport] = []
    notes: list[str] = []
    if not problems:
        # The user's code may print, and standard output is for the result. A bar hides the cursor.
        with redirect_stdout(sys.stderr), exit_after_interrupt(console.show_cursor):
            load_tensorflow()
            started = time.monotonic()
            notes, problems = _first_batches(pipelines, names, scan)
            if scan and not problems:
                notes, reports, problems = _scan(pipelines, names, options)
    good = not problems and all(map(options.accepts, reports))
    if as_json:
        document = {
            "file": str(file),
            "good": good,
            "problems": [vars(problem) for problem in problems],
            "pipelines": [report.to_json() for report in reports] if reports else names,
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        from infeed_tools.check.text import print_report

        for report in reports:
            print_report(report)
        valid = {name: pipelines[name] for name in names if name in pipelines}
        for line in [*notes, *order_notes(valid), *map(str, problems)]:
            typer.echo(printable_lines(line))
        if problems:
            note = "" if reports or not scan else "; no sample was read"
            result = f"{len(problems)} problem{'s' * (len(problems) > 1)}{note}"
        elif good:
            advice = "" if scan else "; --scan also reads every sample"
            result = f"good, in {time.monotonic() - started:.1f} s: {', '.join(names)}{advice}"
        else:
            result = "bad samples; repair them, or see on_error and --max-bad"
        typer.echo(f"{file}: {result}")
    if not good:
        raise typer.Exit(PROBLEMS_STATUS if pipelines.document.readable else UNREADABLE_STATUS)


def _first_batches(
    pipelines: FilePipelines, names: Sequence[str], scan: bool
) -> tuple[list[str], list[Problem]]:
    """Returns a line for each field with named classes and for each decoder, and the problems."""
    from infeed_server.pipeline.followed_classes import warn_of_other_classes
    from infeed_tools.check.first_batch import make_first_batch

    found = {}
    for name in names:
        with index_progress(name) as progress:
            found[name] = make_first_batch(pipelines, name, progress, with_bad_samples=not scan)
    warn_of_other_classes({name: first.classes for name, first in found.items()})
    lines = [
        f"{name}: the classes of {field} are "
        + abbreviate([f"{n} {text}" for n, text in enumerate(classes)], _MAX_CLASSES)
        for name, first in found.items()
        for field, classes in first.classes.items()
    ]
    lines += [
        f"{name}, first batch: {first.decoder}" for name, first in found.items() if first.decoder
    ]
    return lines, [first.problem for first in found.values() if first.problem is not None]


def _scan(
    pipelines: FilePipelines, names: Sequence[str], options: ScanOptions
) -> tuple[list[str], list[PipelineReport], list[Problem]]:
    """Returns a line for each pipeline that cannot be scanned, the reports, and the problems."""
    from infeed_tools.check.scan import can_scan, scan_pipeline

    notes = [
        f"{name}: not scanned, because a source {pipelines[name].source.kind} has no index"
        for name in names
        if not can_scan(pipelines[name].source)
    ]

    bars = (index_progress, partial(sample_progress, console))
    scans = [
        scan_pipeline(pipelines, name, *bars, limit=options.limit, max_examples=options.show)
        for name in names
        if can_scan(pipelines[name].source)
    ]
    return (
        notes,
        [report for report, _ in scans],
        [problem for _, found in scans for problem in found],
    )
