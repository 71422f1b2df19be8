"""Live view of a load test, for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from infeed.loadtest.report_text import percent_text, seconds_text
from infeed.loadtest.tally import Tally, Trainer
from infeed.stats import STARVED_THRESHOLD_SECONDS

_MAX_ROWS = 16
_WINDOW_SECONDS = 3.0


def live_table(tally: Tally) -> RenderableType:
    """Returns the figures of the last seconds, for each trainer; of many, the first."""
    now = time.monotonic()
    table = Table("rank", "steps", "util.", "wait p50", "wait p99", "starved", box=None)
    for column in table.columns:
        column.justify = "right"
    for trainer in tally.trainers[:_MAX_ROWS]:
        table.add_row(*_row(trainer, tally.plan.step_seconds, now))
    if len(tally.trainers) > _MAX_ROWS:
        table.add_row(f"{len(tally.trainers) - _MAX_ROWS} more")
    return Group(Text(_headline(tally, now), style="bold"), table)


def _headline(tally: Tally, now: float) -> str:
    steps = sum(len(waits) for each in tally.trainers for waits, _ in _recent(each, now))
    rate = steps * tally.batch_size / _WINDOW_SECONDS
    passed = f"{now - tally.began_at:.0f} s"
    if tally.all_began_at is None:
        begun = sum(bool(each.lives and each.lives[0].first) for each in tally.trainers)
        return f"{passed}: {begun} of {len(tally.trainers)} trainers have begun"
    if tally.plan.steps is None:
        left = tally.all_began_at + tally.plan.duration_seconds - now
        passed += f", {max(0.0, left):.0f} s left"
    return f"{passed}: {rate:.0f} samples/s"


def _row(trainer: Trainer, step_seconds: float, now: float) -> Iterator[str]:
    yield str(trainer.rank)
    yield str(trainer.step_count)
    parts = [each for each in _recent(trainer, now) if len(each[0])]
    if not parts:
        yield from ("-",) * 4
        return
    waits = np.concatenate([each[0] for each in parts])
    busy = np.concatenate([each[1] for each in parts])
    total = float(waits.sum() + busy.sum())
    yield percent_text(min(1.0, len(waits) * step_seconds / total) if step_seconds else None)
    for quantile in (0.5, 0.99):
        yield seconds_text(float(np.quantile(waits, quantile)))
    yield percent_text(float((waits > STARVED_THRESHOLD_SECONDS).mean()))


def _recent(trainer: Trainer, now: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the waits and the compute of the last points."""
    if not trainer.lives:
        return
    for steps in reversed(trainer.lives[-1].steps):
        if len(steps) and steps.requested_at[-1] < now - _WINDOW_SECONDS:
            return
        yield steps.wait_seconds, steps.busy_seconds
