"""Command line of the chaos run: `python -m tests.stress.chaos [--events N] [--seed N] ...`."""

from __future__ import annotations

import random
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from tests.harness.nursery import Nursery, Template
from tests.harness.proxies import INSTALLED
from tests.harness.waiting import HarnessError
from tests.stress.chaos.pipelines import PIPELINES
from tests.stress.chaos.report import Report
from tests.stress.chaos.server_faults import run_server_faults
from tests.stress.chaos.setup import PROXIES
from tests.stress.chaos.trainer_kills import run_trainer_kills

_WIDTH = 150


def main(
    events: Annotated[int, typer.Option(min=0, help="Number of server faults; 0: none.")] = 100,
    kill_count: Annotated[
        int, typer.Option("--kills", min=0, help="Number of trainer kills; 0: none.")
    ] = 20,
    seed: Annotated[
        int | None, typer.Option(help="Seed of an earlier run, to repeat it; default: random.")
    ] = None,
    pace: Annotated[float, typer.Option(min=0.1, help="Mean seconds between events.")] = 4.0,
    pipeline: Annotated[str, typer.Option(help=" or ".join(PIPELINES))] = "photos",
    proxy: Annotated[
        str, typer.Option(help=f"Between trainers and servers: {', '.join(PROXIES)}.")
    ] = "none",
    report: Annotated[Path | None, typer.Option(help="Write the report as JSON, too.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep logs and steps in this new directory.")
    ] = None,
) -> None:
    """Disturbs servers, kills trainers, and compares every batch with an undisturbed run.

    Exits with status 1 if a batch differs.
    """
    if pipeline not in PIPELINES:
        raise typer.BadParameter(f"no pipeline {pipeline}; available: {', '.join(PIPELINES)}")
    if proxy not in PROXIES:
        raise typer.BadParameter(f"no proxy {proxy}; available: {', '.join(PROXIES)}")
    if proxy == "nginx" and proxy not in INSTALLED:
        raise typer.BadParameter("--proxy nginx: nginx is not installed")
    # SIGTERM acts as Ctrl-C: child processes must be stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    console.print(f"seed {seed}")
    # Forked from a process that has loaded TensorFlow, servers start sooner: a long run has
    # hundreds of starts.
    with (
        tempfile.TemporaryDirectory() as scratch,
        Template() as template,
        Nursery(template.address) as nursery,
    ):
        folder = keep or Path(scratch)
        for part in ("server_faults", "kills"):
            (folder / part).mkdir(parents=True)
        try:
            served = PIPELINES[pipeline](folder.resolve())
            result = Report(
                run_server_faults(
                    *(served, folder / "server_faults", seed, events, pace),
                    *(nursery.start, proxy),
                )
                if events
                else None,
                run_trainer_kills(served, folder / "kills", seed, kill_count, nursery.start)
                if kill_count
                else None,
            )
        except HarnessError as error:
            console.print(f"error: {error}", style="red", markup=False)
            raise typer.Exit(1) from None
    result.show(console)
    if report is not None:
        result.save(report)
    if not result.exact:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
