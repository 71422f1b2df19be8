"""The command `infeed profile`."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from infeed_server.cli.console import StepProgress, console, loading_tensorflow, named_progress
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow, load_tensorflow

if TYPE_CHECKING:
    from infeed_server.pipeline.load import Pipelines
    from infeed_server.profile.figures import Profile
    from infeed_server.profile.forecast import Fleet

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
        int | None,
        typer.Option(
            min=1, help="Samples to measure the stages on. Default: 64, or fewer large ones."
        ),
    ] = None,
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
    """Runs a pipeline without trainers, and prints what each transform costs and what would help.

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
    job = None if step_ms is None else (trainers, step_ms / 1e3)
    progress = StepProgress(console, f"profile of {pipeline}")
    report = _Report(measured, job, sys.stdout, progress, as_json=as_json)
    # What the user's code prints is not the result. A progress bar hides the cursor.
    with redirect_stdout(sys.stderr), exit_after_interrupt(report.interrupted):
        try:
            options = (seconds, samples, batch_size)
            _measure(pipelines, measured, options, progress.show)
        except KeyboardInterrupt:
            report.interrupted()
            raise typer.Exit(INTERRUPTED_STATUS) from None
        finally:
            progress.stop()
    report.print(complete=True)


def _measure(
    pipelines: Pipelines,
    measured: Profile,
    chosen: tuple[float, int | None, int | None],
    on_step: Callable[[str], None],
) -> None:
    """Measures the pipeline; `chosen` has the values of `Options`, which needs TensorFlow."""
    with loading_tensorflow():
        load_tensorflow()
    from infeed_server.pipeline.load import located
    from infeed_server.processes.malloc import keep_freed_memory
    from infeed_server.profile.indexed import Options
    from infeed_server.profile.measure import measure

    keep_freed_memory()  # as a server does
    with located(pipelines, measured.name):
        definition = pipelines[measured.name]
        measure(measured, definition, Options(*chosen), _opening, on_step=on_step)


@contextmanager
def _opening(name: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar while files are indexed."""
    with named_progress(console) as add_bar:
        yield add_bar(name)


class _Report:
    """The report, printed once: at the end, or by Ctrl-C on any thread."""

    def __init__(
        self,
        measured: Profile,
        job: tuple[int, float] | None,
        out: TextIO,
        progress: StepProgress,
        *,
        as_json: bool,
    ) -> None:
        """`job` is the number of trainers and the seconds of their steps."""
        self._progress = progress
        self._measured = measured
        self._job = job
        self._out = out
        self._as_json = as_json
        self._lock = threading.Lock()
        self._printed = False

    def interrupted(self) -> None:
        """Prints what was measured so far."""
        self._progress.stop()
        console.show_cursor()
        self.print(complete=False)

    def print(self, *, complete: bool) -> None:
        """Prints the report, unless that has happened."""
        from infeed_server.cli.profile_text import print_profile
        from infeed_server.profile.report import to_json

        with self._lock:
            if self._printed:
                return
            self._printed = True
            fleet = self._fleet()
            if self._as_json:
                document = to_json(self._measured, fleet, complete=complete)
                print(json.dumps(document, indent=2), file=self._out, flush=True)
            else:
                print_profile(self._measured, fleet, self._out, complete=complete)

    def _fleet(self) -> Fleet | None:
        from infeed_server.profile.forecast import fleet, forecast

        made = forecast(self._measured)
        if made is None or self._job is None:
            return None
        trainers, step_seconds = self._job
        return fleet(made, self._measured, trainers=trainers, step_seconds=step_seconds)
