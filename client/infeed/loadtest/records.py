"""Records: what a simulated trainer sends to the load test a few times a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.shared.spec import Array
from infeed.stats import Stats

STEP = np.dtype(
    [
        ("requested_at", np.float64),
        ("wait_seconds", np.float64),
        ("busy_seconds", np.float64),
        ("start", np.int64),
        ("epoch", np.int64),
        ("samples", np.int64),
    ]
)
"""One step: when its batch was requested in monotonic seconds, which processes share, the wait for
it, the compute up to the next request, its first position, its epoch, and its filled slots."""


@dataclass(frozen=True)
class Point:
    """The steps since the last point, and the state after them. A resume starts from it."""

    steps: Array
    """A row of `STEP` for each, in order."""
    sample_ids: Array
    """int64 [steps, slots]."""
    at: float
    """Monotonic seconds."""
    state: Mapping[str, Any]
    """The cursor after these steps."""
    stats: Stats
    """Of the feed, since the trainer connected."""
    connect_seconds: float
    cpu_seconds: float
    """Processor time of the trainer's process so far."""
    max_memory_bytes: int
    """Its largest resident memory so far."""
    messages: tuple[tuple[float, str], ...] = ()
    """The warnings that the feed logged since the last point, with their monotonic times."""
    unanswered_at: float | None = None
    """When the trainer requested a batch that it did not get before it was stopped, monotonic
    seconds; None: it had all that it requested."""


Record = Point | str | None
"""A point; at the end the error of the trainer, or None if it made its steps or was stopped."""
