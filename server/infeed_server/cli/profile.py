"""The command `infeed profile`, and its report as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from infeed.shared.printable import printable_lines
from infeed_server.cli.console import (
    console,
    index_progress,
    loading_tensorflow,
    print_line,
    report_console,
)
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow, load_tensorflow

if TYPE_CHECKING:
    from infeed_server.profile.figures import Profile

_LIMITS = {
    "cpu": "the processor",
    "read": "reading",
    "transforms": "work that does not use all cores",
}

_MENTIONED_SHARE = 0.1
"""Share of the cores used by other processes from which the report mentions them."""


def profile(
    file: Annotated[str, typer.Argument(help="A YAML file, or module:attr in Python.")],
    pipeline: Annotated[str, typer.Argument(help="The pipeline's name.")],
    seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Seconds to run the whole pipeline; each stage runs a tenth.",
        ),
    ] = 5.0,
    samples: Annotated[
        int,
        typer.Option(min=1, help="Samples to measure the stages on; fewer large ones."),
    ] = 64,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Slots of a batch. Default: the pipeline's."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Runs a pipeline without trainers, and prints what each transform costs and where to look.

    The stages are measured one by one on real samples, then the whole
    pipeline is run as a server runs it. It takes about 20 seconds, or minutes beside
    busy processes; standard error has the step under way.

    \b
    Examples:
      infeed profile pipelines.yaml photos
      infeed profile pipelines.yaml photos --seconds 20 --json
    """
    set_up_logging()
    defer_tensorflow()
    from infeed_server.pipeline.load import load, located
    from infeed_server.processes.signals import exit_after_interrupt
    from infeed_server.profile.figures import Profile

    pipelines = load(file)
    if pipeline not in pipelines:
        raise typer.BadParameter(
            f"{pipeline!r}: no such pipeline; the file has: {', '.join(pipelines)}",
            param_hint="PIPELINE",
        )
    measured, out = Profile(pipeline, cores=1), sys.stdout

    def show_step(step: str) -> None:
        print_line(console, f"profile of {pipeline}: {step}")

    # What the user's code prints is not the result. A progress bar hides the cursor.
    with redirect_stdout(sys.stderr), exit_after_interrupt(console.show_cursor):
        with loading_tensorflow():
            load_tensorflow()
        from infeed_server.processes.malloc import keep_freed_memory
        from infeed_server.profile.measure import measure

        keep_freed_memory()  # as a server does
        definition = pipelines[pipeline]
        run = partial(measure, measured, definition, index_progress, show_step)
        with located(pipelines, pipeline):
            run(seconds=seconds, samples=samples, batch_size=batch_size)
    if as_json:
        print(json.dumps(measured.to_json(), indent=2), file=out)
    else:
        print_profile(measured, out)


def print_profile(profile: Profile, file: TextIO) -> None:
    """Prints what was measured."""
    out = report_console(file)
    print_line(
        out,
        f"{profile.name}: {profile.cores} core{'s' * (profile.cores > 1)}, batches of "
        f"{profile.batch_size}; stages measured on {profile.samples} samples",
    )
    if profile.bad_samples:
        bad = f"  bad samples, left out: {profile.bad_samples}; the first: {profile.bad_example}"
        print_line(out, bad)
    if profile.stages:
        out.print(_table(profile))
    for text in _rates(profile):
        print_line(out, text)


def _table(profile: Profile) -> Table:
    """Returns the table of stages in the order of a sample; times are per sample."""
    table = Table(box=SIMPLE_HEAD, highlight=False)
    table.add_column("stage")
    for title in ("CPU µs", "share", "wall µs", "bytes in", "bytes out"):
        table.add_column(title, justify="right")
    table.add_column("runs")
    for stage in profile.stages:
        at_server = stage in profile.server_stages
        table.add_row(
            Text(printable_lines(stage.name)),
            f"{stage.cost.cpu * 1e6:,.0f}",
            f"{profile.share(stage):.0%}" if at_server else "",
            f"{stage.cost.elapsed * 1e6:,.0f}",
            f"{stage.bytes_in:,.0f}",
            f"{stage.bytes_out:,.0f}",
            "" if at_server else "at the trainer",
        )
    total = sum(stage.cost.cpu for stage in profile.server_stages)
    table.add_row("sum at the server", f"{total * 1e6:,.0f}", "100%")
    return table


def _rates(profile: Profile) -> Iterator[str]:
    run = profile.run
    if run is None or not run.batches:
        return
    if not profile.stages:
        yield "note: a dataset's transforms are inside of its function: only their sum is measured"
    if profile.cached:
        yield "note: all is as in the first epoch; later ones take from the cache what is before it"
    samples = run.batches * profile.batch_size
    yield (
        f"measured: {samples / run.seconds:,.0f} samples/s, {run.cpu_seconds / run.seconds:.2f} of "
        f"{profile.cores} cores used, {run.cpu_seconds / samples * 1e6:,.0f} µs of CPU "
        f"time per sample, over {run.seconds:.1f} s"
    )
    others = run.cores - run.usable_cores
    if others > _MENTIONED_SHARE * profile.cores:
        yield f"          other processes of this host used {others:.2f} cores meanwhile"
    yield f"limit:    {_LIMITS[profile.limit]}"
    for number, text in enumerate(profile.advice()):
        yield f"{'advice: ' if number == 0 else '        '}{text}"
