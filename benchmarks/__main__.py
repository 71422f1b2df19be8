"""Command line of the benchmarks: `python -m benchmarks [CASE ...] [--pairs N] [--seconds S]`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from benchmarks import machine, photos
from benchmarks.cases import CASES, Case
from benchmarks.duel import Plan
from benchmarks.plot import draw
from benchmarks.processes import BenchmarkError
from benchmarks.results import Outcome, Results, table
from rich.console import Console

RESULTS = Path("bench-results")

WIDTH = 150
"""Columns of the table if the output is not a terminal."""


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[CASE]...")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Counted pairs for each case.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Measured seconds of each run.")] = 5.0,
) -> None:
    """Compares infeed with its peers: every case, or the named cases.

    Writes the figures to bench-results/ as JSON and as a picture. A run of named cases replaces
    their results and keeps the results of other cases from an earlier run.
    """
    unknown = [name for name in names or () if name not in CASES]
    if unknown:
        raise typer.BadParameter(f"no case {', '.join(unknown)}; available: {', '.join(CASES)}")
    # SIGTERM acts as Ctrl-C: child processes must be stopped and results so far shown.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        # Photos are drawn here, before anything is measured.
        about = {**machine.describe(), "photos": photos.describe()}
    except BenchmarkError as error:
        raise typer.BadParameter(str(error)) from None
    results = Results(RESULTS / "results.json", about)
    if names:
        results.keep_earlier()
    console.print(*(f"{name}: {value}" for name, value in results.machine.items()), sep="\n")
    selected = {name: CASES[name] for name in names or CASES}
    new: dict[str, Outcome] = {}
    try:
        for name, case in selected.items():
            console.rule(f"{name}: {case.about}", align="left")
            new[name] = _run_case(case, Plan(pairs, seconds))
            results.add(name, new[name])
            _show(console, name, new[name])
    except KeyboardInterrupt:
        console.print("[red]interrupted")
        raise typer.Exit(130) from None
    finally:
        draw(results, RESULTS / "results.png")
        console.rule("infeed ÷ peer, medians of pairs", align="left")
        console.print(table(new))
        console.print(f"{RESULTS}/results.json, {RESULTS}/results.png")
    if any(outcome.error for outcome in new.values()):
        raise typer.Exit(1)


def _run_case(case: Case, plan: Plan) -> Outcome:
    """Returns the outcome, also of a case that raises: the other cases must still run."""
    load = machine.load()
    try:
        return Outcome(case.run(plan), None, plan, load)
    except Exception as error:  # noqa: BLE001
        return Outcome((), f"{type(error).__name__}: {error}", plan, load)


def _show(console: Console, name: str, outcome: Outcome) -> None:
    if outcome.error is not None:
        console.print(f"failed: {outcome.error}", style="red", markup=False)
        return
    console.print(table({name: outcome}))
    for note in dict.fromkeys(finding.note for finding in outcome.findings if finding.note):
        console.print(f"({note})", style="dim")


if __name__ == "__main__":
    typer.run(main)
