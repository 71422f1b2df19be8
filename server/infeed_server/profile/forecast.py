"""The forecast of a profile: what one server on this host can serve, and how many a job needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from infeed.shared.capacity import capacity
from infeed_server.profile.figures import Profile

Limit = Literal["cpu", "read", "transforms"]
"""What ends the growth: the cores, the source, or transforms that do not use all cores."""

_BUSY_SHARE = 0.8
"""Share of the cores it could have had, from which they are the limit of a run: with less, a run
that waits counts as one that computes, and its forecast is too high."""

_MAX_DIFFERENCE = 0.4
"""Share by which the CPU time of the whole run may differ from the sum of its stages: with more,
the shares of the stages say nothing about the run."""


@dataclass(frozen=True)
class Forecast:
    """One server with all cores of this host to itself. Rates are per second."""

    samples: float
    batches: float
    limit: Limit
    wire_bytes: float | None


@dataclass(frozen=True)
class Fleet:
    """The servers that trainers need, all of them like this host."""

    samples: float
    """Samples per second that all trainers take."""
    servers: int
    utilisation: float
    """The share of their capacity that so many servers use."""


def forecast(profile: Profile) -> Forecast | None:
    """Returns the forecast from the run; None before it. A run that used all cores it could have
    would make more with the cores of other processes, until the source is the limit; another one
    would not."""
    run = profile.run
    if run is None or not run.batches:
        return None
    is_computing = run.cpu_seconds >= _BUSY_SHARE * run.seconds * run.usable_cores
    alone = replace(run, transform_seconds=0.0) if is_computing else run
    batches = capacity(alone, alone=True) or 0.0
    limit: Limit = "cpu"
    if run.source_seconds / run.seconds > (run.cpu_share if is_computing else 0.5):
        limit = "read"
    elif not is_computing:
        limit = "transforms"
    samples = batches * profile.batch_size
    size = profile.wire_bytes
    return Forecast(samples, batches, limit, None if size is None else samples * size)


def fleet(made: Forecast, trainers: int, step_seconds: float) -> Fleet:
    """Returns the servers for trainers that take a batch each in every step, and never wait."""
    wanted = trainers / step_seconds
    servers = max(1, math.ceil(wanted / made.batches))
    samples = wanted * made.samples / made.batches
    return Fleet(samples, servers, wanted / (servers * made.batches))


def doubt(profile: Profile) -> str:
    """Returns why the figures are unreliable; empty if stages and run agree."""
    if profile.run is None or not profile.run_samples or not profile.stages:
        return ""
    whole = profile.run.cpu_seconds / profile.run_samples
    stages = sum(
        stage.cost.cpu for stage in profile.stages if stage.kind not in ("finish", "cache")
    )
    if abs(stages - whole) <= _MAX_DIFFERENCE * whole:
        return ""
    return (
        f"a sample took {stages * 1e6:,.0f} µs of CPU time in the stages, one after the other, and "
        f"{whole * 1e6:,.0f} µs in the whole pipeline"
    )
