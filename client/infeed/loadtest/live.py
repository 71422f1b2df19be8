"""Live view of a load test, for a terminal."""

from __future__ import annotations

import time

import numpy as np
from rich.text import Text

from infeed.loadtest.figures import Measured
from infeed.loadtest.records import STEP
from infeed.loadtest.tables import FIGURE_HEADS, Table, figure_cells
from infeed.loadtest.tally import Tally, Trainer
from infeed.shared.spec import Array

_MAX_ROWS = 16
"""Trainers that are shown: more would not fit on a screen."""

_WINDOW_SECONDS = 3.0
"""Seconds that the figures cover: a longer time is steadier, and later to show a change."""


def live_table(tally: Tally) -> Text:
    """Returns the figures of the last seconds, for each trainer; of many, the first."""
    now = time.monotonic()
    recent = [_recent(trainer, now) for trainer in tally.trainers]
    rows = []
    for trainer, steps in zip(tally.trainers[:_MAX_ROWS], recent, strict=False):
        figures = Measured(steps, np.empty(0)).figures(tally.plan.step_seconds)
        rows.append((str(trainer.rank), str(trainer.step_count), *figure_cells(figures)))
    headline = f"{now - tally.began_at:.0f} s: {tally.begun} of {len(recent)} trainers have begun"
    if tally.all_began_at is not None:
        end = tally.all_began_at + tally.plan.duration_seconds
        left = "" if tally.plan.steps else f", {max(0.0, end - now):.0f} s left"
        rate = sum(map(len, recent)) * tally.batch_size / _WINDOW_SECONDS
        headline = f"{now - tally.began_at:.0f} s{left}: {rate:.0f} samples/s"
    hidden = len(recent) - len(rows)
    table = Table(("rank", "steps", *FIGURE_HEADS), rows)
    more = [f"and {hidden} more"] if hidden else []
    return Text("\n").join([Text(headline, "bold"), *map(Text, [*table.lines(), *more])])


def _recent(trainer: Trainer, now: float) -> Array:
    """Returns the steps of the last points."""
    points = trainer.lives[-1].steps if trainer.lives else []
    recent = [steps for steps in points if steps["requested_at"][-1] > now - _WINDOW_SECONDS]
    return np.concatenate([np.empty(0, STEP), *recent])
