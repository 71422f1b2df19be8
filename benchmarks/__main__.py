"""Runs the benchmarks: `python -m benchmarks [CASE ...] [--pairs N] [--seconds S]`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from benchmarks import machine
from benchmarks.cases import CASES, Case
from benchmarks.duel import Plan
from benchmarks.plot import draw
from benchmarks.results import Outcome, Results, table
from rich.console import Console

RESULTS = Path("bench-results")

WIDTH = 150
"""Columns of the table where the output is no terminal."""


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[CASE]...")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Counted pairs of each case.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="That each run counts.")] = 5.0,
) -> None:
    """Compare infeed with its peers: every case, or those named.

    Figures go to bench-results/ as JSON and as a picture. A run of named cases replaces those and
    keeps the others of an earlier run.
    """
    unknown = [name for name in names or () if name not in CASES]
    if unknown:
        raise typer.BadParameter(f"no case {', '.join(unknown)}; there is {', '.join(CASES)}")
    # As Ctrl-C does: what runs has to be ended, and what was found to be shown.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    results = Results(RESULTS / "results.json", machine.describe())
    if names:
        results.keep_earlier()
    console.print(*(f"{what}: {value}" for what, value in results.machine.items()), sep="\n")
    chosen = {name: CASES[name] for name in names or CASES}
    new: dict[str, Outcome] = {}
    try:
        for name, case in chosen.items():
            console.rule(f"{name}: {case.about}", align="left")
            new[name] = _outcome(case, Plan(pairs, seconds))
            results.add(name, new[name])
            _tell(console, name, new[name])
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


def _outcome(case: Case, plan: Plan) -> Outcome:
    """A case that fails must not keep the others from running."""
    load = machine.load()
    try:
        return Outcome(case.run(plan), None, plan, load)
    except Exception as error:  # noqa: BLE001
        return Outcome((), f"{type(error).__name__}: {error}", plan, load)


def _tell(console: Console, name: str, outcome: Outcome) -> None:
    if outcome.error is not None:
        console.print(f"failed: {outcome.error}", style="red", markup=False)
        return
    console.print(table({name: outcome}))
    for note in dict.fromkeys(finding.note for finding in outcome.findings if finding.note):
        console.print(f"({note})", style="dim")


if __name__ == "__main__":
    typer.run(main)
