"""Command line of the soak runs: `python -m tests.stress.soak [RUN ...]`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from benchmarks import machine
from rich.console import Console
from tests.stress.soak import batches, churn, stopped
from tests.stress.soak.curve import Check

RUNS = ("stopped", "churn", "batches")

WIDTH = 120
"""Columns if the output is not a terminal."""


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...")] = None,
    seconds: Annotated[float, typer.Option(min=5, help="Length of each stop of a trainer.")] = 60.0,
    rate: Annotated[
        float, typer.Option(help="Share of their rate that the other trainers must keep.")
    ] = stopped.MIN_RATE,
    connects: Annotated[int, typer.Option(min=100, help="Number of connections.")] = 1000,
    count: Annotated[int, typer.Option(min=500, help="Batches of the long run.")] = 10_000,
) -> None:
    """Checks that memory does not grow: with a trainer that stops reading, with trainers that
    connect and disconnect, and over many batches. The exit status is 1 if a check fails."""
    unknown = [name for name in names or () if name not in RUNS]
    if unknown:
        raise typer.BadParameter(f"no run {', '.join(unknown)}; available: {', '.join(RUNS)}")
    # SIGTERM acts as Ctrl-C: child processes must be stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(*(f"{name}: {value}" for name, value in machine.describe().items()), sep="\n")
    runs: dict[str, Callable[[], list[Check]]] = {
        "stopped": lambda: stopped.run(seconds, rate, console.print),
        "churn": lambda: churn.run(connects, console.print),
        "batches": lambda: batches.run(count, console.print),
    }
    failed = 0
    for name in names or RUNS:
        console.rule(name, align="left")
        for check in runs[name]():
            console.print(str(check), style=None if check.passed else "red", markup=False)
            failed += not check.passed
    console.rule(align="left")
    console.print(f"{failed} of the checks FAILED" if failed else "all checks passed")
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
