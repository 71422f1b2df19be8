"""The command `infeed profile`."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from infeed_server.cli.console import StepProgress, console, index_progress, loading_tensorflow
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow, load_tensorflow

if TYPE_CHECKING:
    from infeed_server.pipeline.load import Pipelines
    from infeed_server.profile.figures import Profile

JOB = "Forecast for a job"
"""The title of the options of trainers in `infeed profile --help`."""

INTERRUPTED_STATUS = 130
"""The exit status after Ctrl-C, as of a process that SIGINT ends."""


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
    step_ms: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="MS",
            help="Time of a training step in ms: print how many servers the trainers need.",
            rich_help_panel=JOB,
        ),
    ] = None,
    trainers: Annotated[
        int,
        typer.Option(min=1, help="Trainers that take a batch each step.", rich_help_panel=JOB),
    ] = 1,
) -> None:
    """Runs a pipeline without trainers, and prints what each transform costs and where to look.

    The stages are measured one by one on real samples, then the whole
    pipeline is run as a server runs it. It takes about 20 seconds, or minutes beside
    busy processes; standard error has the step under way. Ctrl-C prints
    what was measured so far.

    \b
    Examples:
      infeed profile pipelines.yaml photos
      infeed profile pipelines.yaml photos --step-ms 120 --trainers 8
      infeed profile pipelines.yaml photos --seconds 20 --json
    """
    set_up_logging()
    defer_tensorflow()
    from infeed_server.pipeline.load import load
    from infeed_server.processes.signals import exit_after_interrupt
    from infeed_server.profile.figures import Profile

    pipelines = load(file)
    if pipeline not in pipelines:
        raise typer.BadParameter(
            f"{pipeline!r}: no such pipeline; the file has: {', '.join(pipelines)}",
            param_hint="PIPELINE",
        )
    measured = Profile(pipeline, cores=1)
    progress = StepProgress(console, f"profile of {pipeline}")
    job = None if step_ms is None else (trainers, step_ms / 1e3)
    out, lock, printed = sys.stdout, threading.Lock(), threading.Event()

    def interrupted() -> None:
        """Prints what was measured so far, once; Ctrl-C may call it on two threads."""
        with lock:
            if not printed.is_set():
                printed.set()
                progress.stop()
                console.show_cursor()
                _print(measured, job, out, complete=False, as_json=as_json)

    # What the user's code prints is not the result. A progress bar hides the cursor.
    with redirect_stdout(sys.stderr), exit_after_interrupt(interrupted):
        try:
            with loading_tensorflow():
                load_tensorflow()
            _measure(pipelines, measured, (seconds, samples, batch_size), progress.show)
        except KeyboardInterrupt:
            interrupted()
            raise typer.Exit(INTERRUPTED_STATUS) from None
        finally:
            progress.stop()
    _print(measured, job, out, complete=True, as_json=as_json)


def _measure(
    pipelines: Pipelines,
    measured: Profile,
    options: tuple[float, int, int | None],
    on_step: Callable[[str], None],
) -> None:
    """Measures the pipeline; `options` has the values of `Options`, which needs TensorFlow."""
    from infeed_server.pipeline.load import located
    from infeed_server.processes.malloc import keep_freed_memory
    from infeed_server.profile.measure import Options, measure

    keep_freed_memory()  # as a server does
    with located(pipelines, measured.name):
        measure(measured, pipelines[measured.name], Options(*options), index_progress, on_step)


def _print(
    measured: Profile,
    job: tuple[int, float] | None,
    out: TextIO,
    *,
    complete: bool,
    as_json: bool,
) -> None:
    """Prints the report; `job` is the number of trainers and the seconds of their steps."""
    from infeed_server.cli.profile_text import print_profile
    from infeed_server.profile.forecast import fleet, forecast
    from infeed_server.profile.report import to_json

    made = forecast(measured)
    servers = fleet(made, trainers=job[0], step_seconds=job[1]) if made and job else None
    if as_json:
        document = to_json(measured, servers, complete=complete)
        print(json.dumps(document, indent=2), file=out, flush=True)
    else:
        print_profile(measured, servers, out, complete=complete)
