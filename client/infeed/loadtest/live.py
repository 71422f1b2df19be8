"""Live view of a load test, for a terminal."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from infeed.loadtest.figures import Measured
from infeed.loadtest.records import STEP
from infeed.loadtest.tables import FIGURE_HEADS, figure_cells
from infeed.loadtest.tally import Tally, Trainer
from infeed.shared.spec import Array

_MAX_ROWS = 16
"""Trainers that are shown: more would not fit on a screen."""

_WINDOW_SECONDS = 3.0
"""Seconds that the figures cover: a longer time is steadier, and later to show a change."""


def live_table(tally: Tally) -> RenderableType:
    """Returns the figures of the last seconds, for each trainer; of many, the first."""
    now = time.monotonic()
    recent = [_recent(trainer, now) for trainer in tally.trainers]
    table = Table("rank", "steps", *FIGURE_HEADS, box=None)
    for column in table.columns:
        column.justify = "right"
    for trainer, steps in zip(tally.trainers[:_MAX_ROWS], recent, strict=False):
        figures = Measured(steps, np.empty(0)).figures(tally.plan.step_seconds)
        table.add_row(str(trainer.rank), str(trainer.step_count), *figure_cells(figures))
    if len(tally.trainers) > _MAX_ROWS:
        table.add_row(f"{len(tally.trainers) - _MAX_ROWS} more")
    return Group(Text(_headline(tally, sum(map(len, recent)), now), style="bold"), table)


def _headline(tally: Tally, steps: int, now: float) -> str:
    passed = f"{now - tally.began_at:.0f} s"
    if tally.all_began_at is None:
        return f"{passed}: {tally.begun} of {len(tally.trainers)} trainers have begun"
    if tally.plan.steps is None:
        left = tally.all_began_at + tally.plan.duration_seconds - now
        passed += f", {max(0.0, left):.0f} s left"
    return f"{passed}: {steps * tally.batch_size / _WINDOW_SECONDS:.0f} samples/s"


def _recent(trainer: Trainer, now: float) -> Array:
    """Returns the steps of the last points."""
    points = trainer.lives[-1].steps if trainer.lives else []
    recent = [steps for steps in points if steps["requested_at"][-1] > now - _WINDOW_SECONDS]
    return np.concatenate([np.empty(0, STEP), *recent])
