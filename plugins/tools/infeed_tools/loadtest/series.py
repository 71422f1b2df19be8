"""Time series of a load test: its figures second by second, or in longer bins for long steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from infeed.shared.spec import Array
from infeed_tools.loadtest.figures import last_report
from infeed_tools.loadtest.tally import Tally, TimedReport

_MAX_BINS = 240
"""Points of a plot: more would be denser than its pixels."""

_LONGER_THAN_STEP = 1.05
"""Length of a bin ÷ compute of a step: above 1, because steps also have short waits."""

Row = tuple[float | None, ...]
"""A value per bin; None if nothing was measured."""

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
    waits: dict[str, Row]
    """The quantiles p50 and p99, and the longest wait, by name."""
    utilisation: tuple[Row, ...]
    """For each trainer, compute ÷ time of the steps that end in a bin; None without steps."""
    servers: dict[str, dict[str, Row]]
    """For each server, the shares of its pipeline's four states, and `cpu`, the share of its
    processors in use."""

    @property
    def bins(self) -> int:
        return len(self.samples_per_second)


def time_series(tally: Tally) -> Series:
    """Returns the values over the whole test, in at most 240 bins of whole seconds.

    A bin is longer than a step: otherwise some bins would be empty although all is well.
    """
    end = max(tally.ended_at - tally.began_at, 1e-3)
    step = math.ceil(_LONGER_THAN_STEP * tally.plan.step_seconds)
    width = float(max(1, math.ceil(end / _MAX_BINS), min(step, math.ceil(end))))
    # The last bin takes the rest: in a short bin, a few steps would look like a peak.
    bins = max(1, int(end / width))
    widths = np.full(bins, width)
    widths[-1] = end - width * (bins - 1)

    def bin_of(at: Array) -> Array:
        return np.clip((at - tally.began_at) / width, 0, bins - 1).astype(np.int64)

    rows, parts = [], []
    for trainer in tally.trainers:
        steps = trainer.steps
        seconds = steps["wait_seconds"] + steps["busy_seconds"]
        ended_at = steps["requested_at"] + seconds
        within = ended_at <= tally.ended_at  # a trainer continues until told to stop
        index = bin_of(ended_at[within])
        compute = np.bincount(index, minlength=bins) * tally.plan.step_seconds
        total = np.bincount(index, seconds[within], bins)
        shares = zip(compute.tolist(), total.tolist(), strict=True)
        rows.append(tuple(min(1.0, used / time) if time else None for used, time in shares))
        parts.append((index, steps[within]))
    index, steps = map(np.concatenate, zip(*parts, strict=True))
    groups = [steps["wait_seconds"][index == number] for number in range(bins)]

    def quantile(share: float) -> Row:
        return tuple(
            float(np.quantile(group, share, method="higher")) if len(group) else None
            for group in groups
        )

    def server(reports: list[TimedReport]) -> dict[str, Row]:
        rows: dict[str, list[float | None]] = {name: [None] * bins for name in (*STATES, "cpu")}
        numbers = bin_of(np.array([at for at, _ in reports])).tolist()
        for number in sorted(set(numbers)):
            report = last_report([reports[i] for i, of in enumerate(numbers) if of == number])
            for state in STATES:
                rows[state][number] = getattr(report, f"{state}_seconds") / report.seconds
            rows["cpu"][number] = report.cpu_share
        return {name: tuple(row) for name, row in rows.items()}

    throughput = np.bincount(index, steps["samples"], bins) / np.maximum(widths, 0.25)
    return Series(
        bin_seconds=width,
        begin=min(tally.measured_from - tally.began_at, end),
        end=end,
        samples_per_second=tuple(throughput.tolist()),
        waits={"p50": quantile(0.5), "p99": quantile(0.99), "longest": quantile(1.0)},
        utilisation=tuple(rows),
        servers={address: server(reports) for address, reports in tally.servers.items()},
    )
