"""Records of made-up trainers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from infeed.shared.report import ServerReport, TrainerReport
from infeed.shared.spec import Array, OnError
from infeed.stats import Stats
from infeed.testing import FakeTransport
from infeed_tools.loadtest.plan import LoadPlan
from infeed_tools.loadtest.tally import Tally
from infeed_tools.loadtest.trainer import STEP, Point

SLOTS = 4


def fake(samples: int = 40, **options: Any) -> FakeTransport:
    return FakeTransport(
        {"x": np.arange(samples)}, name="numbers", batch_size=SLOTS, shuffle=False, **options
    )


def steps(numbers: list[int], rank: int = 0, ranks: int = 1, **figures: Any) -> Array:
    """Returns the steps of a rank with these numbers, by default of 10 ms and without a wait."""
    made = np.zeros(len(numbers), STEP)
    made["requested_at"] = np.arange(len(numbers)) * 0.01
    made["busy_seconds"] = 0.01
    made["start"] = (np.array(numbers, np.int64) * ranks + rank) * SLOTS
    made["epoch"] = made["start"] // 40
    made["samples"] = SLOTS
    for name, values in figures.items():
        made[name] = values
    return made


def point(made: Array, at: float = 1.0, **values: Any) -> Point:
    """Returns a point with these steps; fields of `Stats` go into its stats."""
    report = TrainerReport(
        seconds=1.0, steps=max(2, len(made)), total_steps=max(1, len(made)), streams=1
    )
    stats: dict[str, Any] = dict.fromkeys(Stats.__match_args__, 0) | {
        "bytes": 100 * len(made),
        "report": report,
        "server_reports": {},
        "lost_servers": (),
        **{name: value for name, value in values.items() if name in Stats.__match_args__},
    }
    given: dict[str, Any] = {
        "sample_ids": (made["start"][:, None] + np.arange(SLOTS)) % 40,
        **{name: value for name, value in values.items() if name not in stats},
    }
    return Point(steps=made, at=at, stats=Stats(**stats), **given)


def busy_server(**values: Any) -> ServerReport:
    """Returns the report of a fully busy server that made 10 batches in a second."""
    given = {"seconds": 1.0, "batches": 10, "bytes": 1000, "transform_seconds": 1.0, "cores": 1.0}
    return ServerReport(**{**given, "cpu_seconds": 1.0, **values})


def tally(plan: LoadPlan, on_error: OnError = "raise") -> Tally:
    """Returns a tally whose trainers all begin at 0 and end at 1 second."""
    made = Tally(plan, replace(fake().spec, on_error=on_error))
    made.all_began_at, made.ended_at = 0.0, 1.0
    return made
