"""The command `infeed profile`."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated

import typer

from infeed.cli import PREPARE
from infeed.cli.output import print_lines
from infeed_server.cli.console import console, index_progress
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow, load_tensorflow

INTERRUPTED_STATUS = 130
"""The exit status after Ctrl-C, that of a process ended by SIGINT."""


app = typer.Typer()


@app.command(rich_help_panel=PREPARE)
def profile(
    file: Annotated[str, typer.Argument(help="YAML file of pipelines, or module:attr in Python.")],
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
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
        typer.Option(min=1, help="Samples to measure the stages on; fewer if large."),
    ] = 64,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Slots of a batch. Default: the pipeline's."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Runs a pipeline without trainers, and prints what each transform costs and what to improve.

    It measures the stages one by one on real samples, then runs the whole pipeline like a server.
    That takes about 20 seconds, or minutes beside busy processes; standard error shows the current
    step. Ctrl-C prints the results so far.

    \b
    Examples:
      infeed profile pipelines.yaml photos
      infeed profile pipelines.yaml photos --seconds 20 --json
    """
    set_up_logging()
    defer_tensorflow()
    from infeed_server.pipeline.load import load, located
    from infeed_server.processes.signals import exit_after_interrupt
    from infeed_tools.profile.figures import Profile
    from infeed_tools.profile.text import print_profile, to_json

    pipelines = load(file)
    if pipeline not in pipelines:
        raise typer.BadParameter(
            f"{pipeline!r}: no such pipeline; the file has: {', '.join(pipelines)}",
            param_hint="PIPELINE",
        )
    measured = Profile(pipeline, cores=1)
    out, lock, printed = sys.stdout, threading.Lock(), threading.Event()

    def show(*, complete: bool) -> None:
        """Prints the results so far, once; Ctrl-C may call it on two threads."""
        with lock:
            if not printed.is_set():
                printed.set()
                console.show_cursor()  # a progress bar hides it
                if as_json:
                    document = to_json(measured, complete=complete)
                    print(json.dumps(document, indent=2), file=out, flush=True)
                else:
                    print_profile(measured, out, complete=complete)

    def show_step(step: str) -> None:
        print_lines(console, f"profile of {pipeline}: {step}")

    # The user's code may print, and standard output is for the result.
    with redirect_stdout(sys.stderr), exit_after_interrupt(partial(show, complete=False)):
        try:
            load_tensorflow()
            from infeed_server.processes.malloc import keep_freed_memory
            from infeed_tools.profile.measure import Options, measure

            keep_freed_memory()  # as a server does
            options = Options(seconds, samples, batch_size)
            with located(pipelines, pipeline):
                measure(measured, pipelines[pipeline], options, index_progress, show_step)
        except KeyboardInterrupt:
            show(complete=False)
            raise typer.Exit(INTERRUPTED_STATUS) from None
    show(complete=True)
