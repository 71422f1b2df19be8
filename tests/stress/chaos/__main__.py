"""Runs the chaos: `python -m tests.stress.chaos [--events 100] [--seed N] [--report FILE.json]`."""

from __future__ import annotations

import random
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from tests.harness.waiting import HarnessError
from tests.stress.chaos.pipelines import PIPELINES
from tests.stress.chaos.report import Report
from tests.stress.chaos.server_faults import run_server_faults
from tests.stress.chaos.trainer_kills import run_trainer_kills

_WIDTH = 150


def main(
    events: Annotated[int, typer.Option(min=0, help="That happen to servers; 0: none.")] = 100,
    killed: Annotated[
        int, typer.Option("--kills", min=0, help="Of trainers, each resumed; 0: none.")
    ] = 20,
    seed: Annotated[
        int | None, typer.Option(help="To have a run again; default: a new one.")
    ] = None,
    pace: Annotated[float, typer.Option(min=0.1, help="Seconds from event to event.")] = 4.0,
    pipeline: Annotated[str, typer.Option(help=" or ".join(PIPELINES))] = "photos",
    report: Annotated[Path | None, typer.Option(help="Also write a report as JSON.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep logs and steps in this new directory.")
    ] = None,
) -> None:
    """Disturb servers and kill trainers; every batch must be that of an undisturbed run.

    Exits with 1 when one is not.
    """
    if pipeline not in PIPELINES:
        raise typer.BadParameter(f"no pipeline {pipeline}; there is {', '.join(PIPELINES)}")
    # As Ctrl-C does: what runs has to be ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    console.print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = keep or Path(scratch)
        for part in ("server_faults", "kills"):
            (folder / part).mkdir(parents=True)
        try:
            served = PIPELINES[pipeline](folder.resolve())
            found = Report(
                run_server_faults(served, folder / "server_faults", seed, events, pace)
                if events
                else None,
                run_trainer_kills(served, folder / "kills", seed, killed) if killed else None,
            )
        except HarnessError as error:
            console.print(f"error: {error}", style="red", markup=False)
            raise typer.Exit(1) from None
    found.show(console)
    if report is not None:
        found.save(report)
    if not found.exact:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
