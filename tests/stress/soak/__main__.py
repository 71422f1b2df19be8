"""Runs the soak: `python -m tests.stress.soak [RUN ...]`."""

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
"""Columns where the output is no terminal."""


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...")] = None,
    seconds: Annotated[float, typer.Option(min=5, help="That a trainer is stopped.")] = 60.0,
    rate: Annotated[
        float, typer.Option(help="Of their rate that the others keep then.")
    ] = stopped.LEAST_RATE,
    connects: Annotated[int, typer.Option(min=100, help="Connects and disconnects.")] = 1000,
    count: Annotated[int, typer.Option(min=500, help="Batches of the long run.")] = 10_000,
) -> None:
    """Show that memory stays as it is: with a trainer that stops reading, with trainers that come
    and go, and over many batches. The exit status is 1 when something does not hold."""
    unknown = [name for name in names or () if name not in RUNS]
    if unknown:
        raise typer.BadParameter(f"no run {', '.join(unknown)}; there is {', '.join(RUNS)}")
    # As Ctrl-C does: what runs has to be ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(*(f"{what}: {value}" for what, value in machine.describe().items()), sep="\n")
    runs: dict[str, Callable[[], list[Check]]] = {
        "stopped": lambda: stopped.run(seconds, rate, console.print),
        "churn": lambda: churn.run(connects, console.print),
        "batches": lambda: batches.run(count, console.print),
    }
    failed = 0
    for name in names or RUNS:
        console.rule(name, align="left")
        for check in runs[name]():
            console.print(str(check), style=None if check.holds else "red", markup=False)
            failed += not check.holds
    console.rule(align="left")
    console.print(f"{failed} of the checks FAILED" if failed else "all holds")
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
