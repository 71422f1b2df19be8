"""Time series of a load test: its figures second by second, or step by step if these are longer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from infeed.loadtest.tally import Tally, joined
from infeed.shared.process_reports import merge_processes
from infeed.shared.report import ServerReport
from infeed.shared.spec import Array
from infeed.stats import STARVED_THRESHOLD_SECONDS

_MAX_BINS = 240

_LONGER_THAN_STEP = 1.05
"""Of a step's compute: it has short waits, too."""

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
    starved_share: Row
    utilisation: tuple[Row, ...]
    """Of each trainer: compute ÷ time of the steps that end in a bin; None without steps."""
    servers: dict[str, dict[str, Row]]
    """Of each server: the shares of its pipeline's four states, the share `cpu` of its processors,
    its resident bytes, `memory`, and `batches` per second."""

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
    begin = tally.measured_from - tally.began_at
    columns = [_columns(tally, rank) for rank in range(len(tally.trainers))]
    together = [np.concatenate(each) for each in zip(*columns, strict=True)]
    ended_at, waits, _, samples = together
    index = _bins(ended_at - tally.began_at, width, bins)
    widths = np.full(bins, width)
    widths[-1] = end - width * (bins - 1)
    throughput = np.bincount(index, samples, bins) / np.maximum(widths, 0.25)
    groups = [waits[index == number] for number in range(bins)]
    return Series(
        bin_seconds=width,
        begin=min(begin, end),
        end=end,
        samples_per_second=tuple(throughput.tolist()),
        wait_p50=_row(groups, 0.5),
        wait_p99=_row(groups, 0.99),
        wait_max=_row(groups, 1.0),
        starved_share=tuple(
            float((each > STARVED_THRESHOLD_SECONDS).mean()) if len(each) else None
            for each in groups
        ),
        utilisation=tuple(
            _utilisation(each, tally.plan.step_seconds, tally.began_at, width, bins)
            for each in columns
        ),
        servers={
            address: _server(tally, address, width, bins)
            for address, reports in tally.servers.items()
            if reports
        },
    )


def _columns(tally: Tally, rank: int) -> tuple[Array, Array, Array, Array]:
    """Returns when each step of a trainer ended, its wait, its compute and its samples.

    A trainer goes on until it is asked to stop: what ends after the test is left out.
    """
    lives = tally.trainers[rank].lives
    waits, busy = joined(lives, "wait_seconds"), joined(lives, "busy_seconds")
    ids = joined(lives, "sample_ids")
    samples = (ids >= 0).sum(axis=-1).astype(float) if ids.ndim == 2 else np.empty(0)
    ended_at = joined(lives, "requested_at") + waits + busy
    within = ended_at <= tally.ended_at
    return ended_at[within], waits[within], busy[within], samples[within]


def _bins(seconds: Array, width: float, bins: int) -> Array:
    return np.clip((seconds / width).astype(np.int64), 0, bins - 1)


def _row(groups: list[Array], quantile: float) -> Row:
    return tuple(
        float(np.quantile(each, quantile, method="higher")) if len(each) else None
        for each in groups
    )


def _utilisation(
    columns: tuple[Array, Array, Array, Array],
    step_seconds: float,
    began_at: float,
    width: float,
    bins: int,
) -> Row:
    ended_at, waits, busy, _ = columns
    index = _bins(ended_at - began_at, width, bins)
    steps = np.bincount(index, minlength=bins)
    total = np.bincount(index, waits + busy, bins)
    return tuple(
        min(1.0, float(count) * step_seconds / float(seconds)) if count and seconds else None
        for count, seconds in zip(steps, total, strict=True)
    )


def _server(tally: Tally, address: str, width: float, bins: int) -> dict[str, Row]:
    """Returns the last report of each bin, as shares; of several processes, all together."""
    names = (*STATES, "cpu", "memory", "batches")
    rows: dict[str, list[float | None]] = {name: [None] * bins for name in names}
    last: dict[int, dict[int, ServerReport]] = {}
    for at, report in tally.servers[address]:
        process = report.process_id if report.processes > 1 else 0
        last.setdefault(min(bins - 1, int((at - tally.began_at) / width)), {})[process] = report
    for number, processes in last.items():
        report = merge_processes(processes.values())
        for state in STATES:
            rows[state][number] = getattr(report, f"{state}_seconds") / report.seconds
        rows["cpu"][number] = report.cpu_share
        rows["memory"][number] = float(report.memory_bytes) or None
        rows["batches"][number] = report.batches / report.seconds
    return {name: tuple(row) for name, row in rows.items()}
