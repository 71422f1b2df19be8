"""Time series of a load test: its figures second by second, or step by step if these are longer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from infeed.loadtest.server_reports import by_process
from infeed.loadtest.tally import Tally, Trainer
from infeed.shared.report import ServerReport, merge_processes
from infeed.shared.spec import Array

_MAX_BINS = 240
"""Points of a plot: more would be closer than its pixels."""

_LONGER_THAN_STEP = 1.05
"""Length of a bin ÷ compute of a step: steps have short waits, too."""

Row = tuple[float | None, ...]
"""A value for each bin; None where nothing was measured."""

STATES = ("transform", "source", "no_budget", "no_request")
"""The four states of a pipeline, from `ServerReport`."""


@dataclass(frozen=True)
class Series:
    """Values over time, in bins of `bin_seconds` from the first start on."""

    bin_seconds: float
    begin: float
    """The measured time, in seconds since the first start."""
    end: float
    samples_per_second: Row
    wait_p50: Row
    wait_p99: Row
    wait_max: Row
    utilisation: tuple[Row, ...]
    """Of each trainer: compute ÷ time of the steps that end in a bin; None without steps."""
    servers: dict[str, dict[str, Row]]
    """Of each server: the shares of its pipeline's four states, and the share `cpu` of its
    processors."""

    @property
    def bins(self) -> int:
        return len(self.samples_per_second)


def time_series(tally: Tally) -> Series:
    """Returns the values over the whole test, in at most 240 bins of whole seconds.

    A bin is longer than a step: else every other one would be empty while all is well.
    """
    end = max(tally.ended_at - tally.began_at, 1e-3)
    step = math.ceil(_LONGER_THAN_STEP * tally.plan.step_seconds)
    width = float(max(1, math.ceil(end / _MAX_BINS), min(step, math.ceil(end))))
    # What remains at the end is part of the last bin: alone, a few steps would be a peak.
    bins = max(1, int(end / width))
    widths = np.full(bins, width)
    widths[-1] = end - width * (bins - 1)
    trainers = [_ended_steps(tally, trainer, width, bins) for trainer in tally.trainers]
    index = np.concatenate([index for index, _ in trainers])
    steps = np.concatenate([steps for _, steps in trainers])
    waits = [steps["wait_seconds"][index == number] for number in range(bins)]
    throughput = np.bincount(index, steps["samples"], bins) / np.maximum(widths, 0.25)
    return Series(
        bin_seconds=width,
        begin=min(tally.measured_from - tally.began_at, end),
        end=end,
        samples_per_second=tuple(throughput.tolist()),
        wait_p50=_row(waits, 0.5),
        wait_p99=_row(waits, 0.99),
        wait_max=_row(waits, 1.0),
        utilisation=tuple(_utilisation(*made, tally.plan.step_seconds, bins) for made in trainers),
        servers={
            address: _server(reports, tally.began_at, width, bins)
            for address, reports in tally.servers.items()
        },
    )


def _ended_steps(tally: Tally, trainer: Trainer, width: float, bins: int) -> tuple[Array, Array]:
    """Returns the bin in which each step of a trainer ended, and the steps.

    A trainer goes on until it is asked to stop: what ends after the test is left out.
    """
    steps = trainer.steps
    ended_at = steps["requested_at"] + steps["wait_seconds"] + steps["busy_seconds"]
    within = ended_at <= tally.ended_at
    index = (ended_at[within] - tally.began_at) / width
    return np.clip(index.astype(np.int64), 0, bins - 1), steps[within]


def _row(groups: list[Array], quantile: float) -> Row:
    return tuple(
        float(np.quantile(group, quantile, method="higher")) if len(group) else None
        for group in groups
    )


def _utilisation(index: Array, steps: Array, step_seconds: float, bins: int) -> Row:
    counts = np.bincount(index, minlength=bins).tolist()
    seconds = np.bincount(index, steps["wait_seconds"] + steps["busy_seconds"], bins).tolist()
    return tuple(
        min(1.0, count * step_seconds / total) if count and total else None
        for count, total in zip(counts, seconds, strict=True)
    )


def _server(
    reports: list[tuple[float, ServerReport]], began_at: float, width: float, bins: int
) -> dict[str, Row]:
    """Returns the last report of each bin, as shares; of several processes, all together."""
    rows: dict[str, list[float | None]]
    rows = {name: [None] * bins for name in (*STATES, "cpu")}
    groups: dict[int, list[tuple[float, ServerReport]]] = {}
    for at, report in reports:
        groups.setdefault(min(bins - 1, int((at - began_at) / width)), []).append((at, report))
    for number, group in groups.items():
        report = merge_processes([process[-1][1] for process in by_process(group)])
        for state in STATES:
            rows[state][number] = getattr(report, f"{state}_seconds") / report.seconds
        rows["cpu"][number] = report.cpu_share
    return {name: tuple(row) for name, row in rows.items()}
