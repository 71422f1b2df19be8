"""Runs the benchmarks: `python -m benchmarks [CASE ...] [--pairs N] [--seconds S]`.

Each case compares infeed with what its users would pick instead, in alternating pairs, and tells
medians, spreads and the ratio. The server, its peer and the consumers share the machine. Figures
go to bench-results/ as JSON too.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from benchmarks.datasets import PHOTOS
from benchmarks.pairs import (
    Comparison,
    Measure,
    Side,
    alternate,
    compare,
    cpu_seconds_per_gigabyte,
    gigabytes_per_second,
    images_per_second,
)
from benchmarks.processes import infeed_server, service_cluster
from rich.console import Console
from rich.table import Table

RESULTS = Path("bench-results")


@dataclass(frozen=True)
class Case:
    """infeed against one peer on one data set."""

    dataset: str
    peer: str
    """The kind of consumer."""
    compression: str
    measures: dict[str, Measure]


TRANSPORT = {"GB/s": gigabytes_per_second, "trainer CPU s/GB": cpu_seconds_per_gigabyte}
DECODE = {"images/s": images_per_second}

CASES = {
    "transport-float32": Case("float32", "service", "none", TRANSPORT),
    "transport-uint8": Case("uint8", "service", "none", TRANSPORT),
    "decode-default": Case("photos", "service", "auto", DECODE),
    "decode-uncompressed": Case("photos", "service", "none", DECODE),
    "decode-inprocess": Case("photos", "inprocess", "none", DECODE),
    "crop-default": Case("cropped", "service", "auto", DECODE),
}


def main(
    cases: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    pairs: Annotated[int, typer.Option(help="Counted pairs of each case.")] = 5,
    seconds: Annotated[float, typer.Option(help="Of each run.")] = 5.0,
) -> None:
    console = Console()
    names = cases or list(CASES)
    if unknown := sorted(set(names) - set(CASES)):
        raise typer.BadParameter(f"{', '.join(unknown)}; there is {', '.join(CASES)}")
    if not PHOTOS.is_dir():
        raise typer.BadParameter(f"no folder {PHOTOS}; set INFEED_BENCH_PHOTOS to some JPEGs")
    machine = f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, Linux"
    console.print(f"{machine}; {pairs} pairs of {seconds:g} s each")
    table = Table("case", "measure", "infeed", "peer", "infeed / peer", "spread")
    results: dict[str, dict[str, Comparison]] = {}
    with ExitStack() as stack:
        ours = stack.enter_context(infeed_server())
        theirs = stack.enter_context(service_cluster())
        for name in names:
            case = CASES[name]
            runs = alternate(
                Side("infeed", "infeed", ours, case.dataset),
                Side(case.peer, case.peer, theirs, case.dataset, case.compression),
                pairs,
                seconds,
            )
            results[name] = {
                title: compare(runs, measure) for title, measure in case.measures.items()
            }
            for title, found in results[name].items():
                table.add_row(name, title, *_row(found))
            console.print(f"{name} done")
    console.print(table)
    _save(machine, results)


def _row(found: Comparison) -> tuple[str, str, str, str]:
    ratios = found.ratios
    return (
        f"{statistics.median(found.ours):.3g}",
        f"{statistics.median(found.theirs):.3g}",
        f"{found.ratio:.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
    )


def _save(machine: str, results: dict[str, dict[str, Comparison]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    content = {
        "machine": machine,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "cases": {
            name: {title: vars(found) for title, found in measures.items()}
            for name, measures in results.items()
        },
    }
    (RESULTS / "results.json").write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
