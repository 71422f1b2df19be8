"""The command `infeed check`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from infeed.cli import PREPARE
from infeed.shared.printable import printable_lines
from infeed_server.cli.console import (
    console,
    index_progress,
    print_line,
    report_console,
    sample_progress,
)
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow, load_tensorflow
from infeed_server.storage.files import abbreviate

if TYPE_CHECKING:
    from infeed_server.config.document import Problem
    from infeed_server.pipeline.load import FilePipelines
    from infeed_tools.check.report import PipelineReport

SCAN = "Scan"
"""The title of the options of `--scan` in `infeed check --help`."""

PROBLEMS_STATUS = 1
"""The exit status if there is a problem; a wrong option has 2."""

UNREADABLE_STATUS = 2
"""The exit status for a missing file, or one that cannot be read."""

_MAX_CLASSES_SHOWN = 10


app = typer.Typer()


@app.command(rich_help_panel=PREPARE)
def check(
    file: Annotated[Path, typer.Argument(help="A YAML file of pipelines.")],
    scan: Annotated[
        bool, typer.Option("--scan", help="Also read and transform every sample.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a pipeline to scan; can be repeated. Default: all.", rich_help_panel=SCAN
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="Samples to scan of each pipeline. Default: all.", rich_help_panel=SCAN
        ),
    ] = None,
    show: Annotated[
        int,
        typer.Option(min=0, help="Bad samples to list of each pipeline.", rich_help_panel=SCAN),
    ] = 10,
    max_bad: Annotated[
        str,
        typer.Option(
            metavar="NUMBER",
            help="Bad samples of a pipeline that are no problem, as with 'on_error: substitute': "
            "a number such as 5, or a part of the samples such as 2% or 0.02.",
            rich_help_panel=SCAN,
        ),
    ] = "0",
) -> None:
    """Checks a file of pipelines, and with --scan the data of each sample.

    It names mistakes with their lines. Where there is none, it opens each
    pipeline and makes its first batch, as a server does.

    Exit status: 0 if all is good, 1 if there are problems, 2 for a wrong
    option or a file that cannot be read.

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
    accepted = _parse_max_bad(max_bad)
    pipelines = parse_yaml(str(file))
    problems = file_problems(pipelines)
    names = pipeline or list(pipelines)
    unknown = [name for name in names if name not in pipelines]
    if unknown and not pipelines.problems:
        raise typer.BadParameter(
            f"{unknown[0]!r}: no such pipeline; the file has: {', '.join(pipelines)}",
            param_hint="--pipeline",
        )
    reports: list[PipelineReport] = []
    classes: list[str] = []
    if not problems:
        # What the user's code prints is not the result. A progress bar hides the cursor.
        with redirect_stdout(sys.stderr), exit_after_interrupt(console.show_cursor):
            load_tensorflow()
            started = time.monotonic()
            classes, problems = _first_batches(pipelines, names, scan)
            if scan and not problems:
                reports, problems = _scan(pipelines, names, limit, show)
    good = not problems and all(one.bad_samples <= accepted(one.scanned) for one in reports)
    if as_json:
        document = {
            "file": str(file),
            "good": good,
            "problems": [vars(problem) for problem in problems],
            "pipelines": [report.to_json() for report in reports] if reports else names,
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        for report in reports:
            _print_report(report)
        valid = {name: pipelines[name] for name in names if name in pipelines}
        for line in [*(() if reports else classes), *order_notes(valid)]:
            typer.echo(printable_lines(line))
        for problem in problems:
            typer.echo(printable_lines(str(problem)))
        if count := len(problems):
            note = "" if reports or not scan else "; no sample was read"
            result = f"{count} problem{'s' * (count > 1)}{note}"
        elif good:
            advice = "" if scan else "; --scan also reads every sample"
            result = f"good, in {time.monotonic() - started:.1f} s: {', '.join(names)}{advice}"
        else:
            result = "bad samples; repair them, or see on_error and --max-bad"
        typer.echo(f"{file}: {result}")
    if not good:
        raise typer.Exit(PROBLEMS_STATUS if pipelines.document.readable else UNREADABLE_STATUS)


def _parse_max_bad(text: str) -> Callable[[int], float]:
    """Returns how many bad ones are accepted of a number of samples."""
    is_percent = text.endswith("%")
    with suppress(ValueError):
        if not is_percent and text.isdecimal():
            return lambda _: int(text)
        share = float(text.removesuffix("%")) / (100 if is_percent else 1)
        if 0 <= share < 1:
            return lambda samples: share * samples
    raise typer.BadParameter(
        f"{text!r} is neither a number of samples, such as 5, nor a part of them, such as 2% or "
        "0.02",
        param_hint="--max-bad",
    )


def _first_batches(
    pipelines: FilePipelines, names: Sequence[str], scan: bool
) -> tuple[list[str], list[Problem]]:
    """Returns a line for each field with named classes and each decoder, and the problems."""
    from infeed_server.pipeline.followed_classes import warn_of_other_classes
    from infeed_tools.check.first_batch import make_first_batch

    found = {}
    for name in names:
        with index_progress(name) as progress:
            found[name] = make_first_batch(pipelines, name, progress, with_bad_samples=not scan)
    warn_of_other_classes({name: first.classes for name, first in found.items()})
    lines = [
        f"{name}: the classes of {field} are "
        + abbreviate([f"{n} {text}" for n, text in enumerate(classes)], _MAX_CLASSES_SHOWN)
        for name, first in found.items()
        for field, classes in first.classes.items()
    ]
    lines += [f"{name}, first batch: {first.decoder}" for name, first in found.items() if first.decoder]
    return lines, [first.problem for first in found.values() if first.problem is not None]


def _scan(
    pipelines: FilePipelines, names: Sequence[str], limit: int | None, show: int
) -> tuple[list[PipelineReport], list[Problem]]:
    from infeed_tools.check.scan import scan_pipeline

    bars = (index_progress, partial(sample_progress, console))
    scans = [
        scan_pipeline(pipelines, name, *bars, limit=limit, max_examples=show) for name in names
    ]
    return [report for report, _ in scans], [problem for _, found in scans for problem in found]


def _print_report(report: PipelineReport) -> None:
    out = report_console()
    line = partial(print_line, out)
    of = "" if report.samples in (None, report.scanned) else f" of {report.samples}"
    line(f"{report.name}: {report.scanned}{of} samples, {report.bad_samples} bad")
    if report.decoder:
        line(f"  {report.decoder}")
    if report.without_label:
        line(f"  without a label: {report.without_label}")
    for error in report.bad_examples:
        line(f"  bad: {error.message}")
    if report.bad_samples > len(report.bad_examples):
        line(f"  bad: and {report.bad_samples - len(report.bad_examples)} more; see --show")
    for field, sides in report.image_sizes().items():
        listed = ", ".join(
            f"{side} {low} to {high} (median {median})"
            for side, (low, median, high) in sides.items()
        )
        line(f"  sizes of {field}: {listed}")
    for balance in report.balances():
        counts = sorted(balance.counts.values())
        line(
            f"  classes of {balance.field}: {len(counts)}, with {counts[0]} to {counts[-1]} "
            f"samples (median {counts[len(counts) // 2]})"
        )
        common = balance.counts.most_common()
        shown = [f"{balance.label(value)}: {count}" for value, count in common]
        if len(shown) > _MAX_CLASSES_SHOWN:
            half = _MAX_CLASSES_SHOWN // 2
            shown = [*shown[:half], "...", *shown[-half:]]
        line(f"    {', '.join(shown)}")
    if report.ranges:
        out.print(_range_table(report))


def _range_table(report: PipelineReport) -> Table:
    table = Table(
        *("after", "field", "data type", "shape", "min", "max", "mean", "std"),
        box=SIMPLE_HEAD,
        highlight=False,
    )
    for found in report.ranges:
        unit = " bytes" if found.data_type == "bytes" else ""
        numbers = (found.minimum, found.maximum, found.mean, found.std)
        values = ["-"] * 4 if found.is_empty else [f"{number:.6g}{unit}" for number in numbers]
        cells = (report.stages[found.stage], found.field, found.data_type, found.shape, *values)
        table.add_row(*map(Text, cells))
    return table
