"""Artificial situations: what the verdict says, and whether the advised change helps as forecast.

    python -m benchmarks.situations [NAME ...] [--seconds 12]

Each has one limit, known because it was built in: a slow training step, a throttled link, a long
round trip, expensive transforms or a slow data set. A real server and a real feed run in it, and
again with the change that the verdict advises. The forecast is computed beforehand, from the first
run's figures alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from benchmarks.servers import delayed
from benchmarks.throttle import throttled
from rich.console import Console
from rich.table import Table
from tests.harness.server import InfeedServer

import infeed
from infeed.shared.capacity import capacity
from infeed.stats import Stats

MAX_ERROR = 0.25
"""Share of the forecast by which the measured rate may miss it."""

_WARM_UP_STEPS = 5

_FUNCTIONS = '''
"""A source and a transform whose costs are known."""
import time
import numpy as np
import tensorflow as tf

class Slow:
    """Samples that take 4 ms each to read."""
    fingerprint = "v1"
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        time.sleep(0.004)
        return {"x": np.full([64], index, np.float32)}

def slow_source():
    return Slow()

def burn(sample):
    """Takes a few milliseconds of one processor."""
    x = sample["x"]
    matrix = tf.ones([160, 160]) * x[0]
    for _ in range(240):
        matrix = tf.linalg.matmul(matrix, matrix) * 1e-3
    return {"x": x + 0 * matrix[0, 0]}
'''

_PIPELINES = """
pipelines:
  small:
    source: {arrays: small.npz}
    batch: {size: 16}
  pictures:
    source: {arrays: pictures.npz}
    transforms: [{normalize: {field: image, scale: 255.0}}]
    batch: {size: 8}
  heavy:
    source: {arrays: small.npz}
    transforms: [{map: functions:burn}]
    batch: {size: 16}
  slow:
    source: {python: functions:slow_source}
    batch: {size: 16}
  slow-with-workers:
    source: {python: functions:slow_source, processes: 4}
    batch: {size: 16}
"""


@dataclass(frozen=True)
class Run:
    """A training: its pipeline, its step and the options of its feed."""

    pipeline: str
    step_seconds: float = 0.0
    servers: int = 1
    delay_ms: float = 0.0
    bytes_per_second: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Situation:
    """A limit that was built in, the cause that the verdict must name, and the advised change."""

    cause: str | None
    run: Run
    change: Callable[[Run, Stats], Run] | None = None
    forecast: Callable[[Run, Stats], float] | None = None
    """Steps per second after the change."""
    advised: str = ""


def _servers(stats: Stats) -> int:
    """Returns the advised number of servers, at most as many as this machine has processors for."""
    return min(stats.assessment.servers or 1, len(os.sched_getaffinity(0)))


def _more_servers(run: Run, stats: Stats) -> Run:
    return Run(run.pipeline, run.step_seconds, _servers(stats))


def _rate_of_servers(_: Run, stats: Stats) -> float:
    """Returns the steps per second with the advised number of servers."""
    (report,) = stats.server_reports.values()
    made = _servers(stats) * (capacity(report) or 0.0)
    return min(made, 1 / (stats.report.step_seconds or 1e-9))


SITUATIONS = {
    "slow-step": Situation(None, Run("small", step_seconds=0.05)),
    "throttled-link": Situation(
        "network rate",
        Run("pictures", bytes_per_second=20e6, options={"finish": "server"}),
        lambda run, _: Run(run.pipeline, bytes_per_second=run.bytes_per_second),
        lambda _, stats: 4 * stats.report.steps / stats.report.seconds,
        "finish transforms at the trainer: uint8 instead of float32",
    ),
    "long-round-trip": Situation(
        "round trip",
        Run("small", delay_ms=50.0, options={"prefetch_batches": 2}),
        lambda run, _: Run(run.pipeline, delay_ms=run.delay_ms, options={"prefetch_batches": 16}),
        lambda _, stats: 8 * stats.report.steps / stats.report.seconds,
        "prefetch_batches 16 instead of 2",
    ),
    "heavy-transforms": Situation(
        "transforms",
        Run("heavy", step_seconds=0.05),
        _more_servers,
        _rate_of_servers,
        "as many servers as the verdict says, up to the processors of this machine",
    ),
    "slow-python": Situation(
        "Python workers",
        Run("slow", step_seconds=0.001),
        lambda run, _: Run("slow-with-workers", run.step_seconds),
        lambda _, stats: 4 * stats.report.steps / stats.report.seconds,
        "processes: 4",
    ),
}


def measure(run: Run, folder: Path, seconds: float) -> Stats:
    """Returns the statistics of a training of some seconds."""
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(_server(folder, number, run)) for number in range(run.servers)
        ]
        target = ",".join(addresses)
        with infeed.connect(target, run.pipeline, **run.options) as feed:
            for number, _ in enumerate(feed):
                if number == _WARM_UP_STEPS:
                    end = time.monotonic() + seconds
                if number > _WARM_UP_STEPS and time.monotonic() > end:
                    return feed.stats()
                time.sleep(run.step_seconds)
    raise AssertionError("an endless feed has ended")


@contextmanager
def _server(folder: Path, number: int, run: Run) -> Iterator[str]:
    """Runs a server on a processor of its own, behind the link of the situation."""
    processors = sorted(os.sched_getaffinity(0))
    own = {processors[number % len(processors)]}
    log = folder / f"server-{number}-{time.monotonic_ns()}"
    os.sched_setaffinity(0, own)  # inherited by the server
    try:
        server = InfeedServer(folder / "pipelines.yaml", log, cwd=folder)
        server.start()
    finally:
        os.sched_setaffinity(0, processors)
    with ExitStack() as stack:
        stack.callback(server.kill)
        server.wait_until_serving()
        address = server.address
        if run.delay_ms:
            address = stack.enter_context(delayed(address, run.delay_ms))
        if run.bytes_per_second:
            address = stack.enter_context(throttled(address, run.bytes_per_second))
        yield address


def _write_data(folder: Path) -> None:
    np.savez(folder / "small.npz", x=np.ones((4096, 64), np.float32))
    np.savez(folder / "pictures.npz", image=np.zeros((64, 128, 128, 3), np.uint8))
    (folder / "functions.py").write_text(_FUNCTIONS)
    (folder / "pipelines.yaml").write_text(_PIPELINES)


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
    seconds: Annotated[float, typer.Option(min=11.0, help="Seconds of each run.")] = 12.0,
) -> None:
    """Prints verdicts, forecasts and what came true; the exit status is 1 if one is wrong."""
    unknown = [name for name in names or () if name not in SITUATIONS]
    if unknown:
        raise typer.BadParameter(f"no {', '.join(unknown)}; available: {', '.join(SITUATIONS)}")
    console, wrong = Console(width=150), False
    table = Table("situation", "verdict", "change", "steps/s before", "forecast", "measured")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_data(folder)
        for item in names or SITUATIONS:
            situation = SITUATIONS[item]
            stats = measure(situation.run, folder, seconds)
            assessment = stats.assessment
            wrong |= assessment.cause != situation.cause
            before = stats.report.steps / stats.report.seconds
            row = [item, str(assessment), situation.advised, f"{before:.1f}", "", ""]
            if situation.change and situation.forecast:
                forecast = situation.forecast(situation.run, stats)
                after = measure(situation.change(situation.run, stats), folder, seconds).report
                measured = after.steps / after.seconds
                row[4:] = [f"{forecast:.1f}", f"{measured:.1f} ({measured / forecast:.2f})"]
                wrong |= abs(measured / forecast - 1) > MAX_ERROR
            table.add_row(*row)
            console.print(f"{item}: {assessment} (load {os.getloadavg()[0]:.1f})")
    console.print(table)
    sys.exit(wrong)


if __name__ == "__main__":
    typer.run(main)
