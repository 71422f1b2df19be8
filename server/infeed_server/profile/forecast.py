"""The forecast of a profile: what one server on this host can serve, and how many a job needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infeed_server.profile.figures import Cost, Profile, Run, Stage

LimitName = Literal["cpu", "read", "python"]
"""What ends the growth: the cores, the source, or the one interpreter of functions in Python."""

_BUSY_SHARE = 0.7
"""Reading that uses at least this share of the cores is limited by them, not by the storage."""


_MAX_DELAY_SHARE = 0.5
"""Threads that wait for a core, on average, above which other processes make a stage slow."""


@dataclass(frozen=True)
class Forecast:
    """One server with all cores of this host. Rates are per second."""

    cpu_per_sample: float
    """CPU seconds of a sample, of all stages of the server."""
    first_epoch_cpu: float
    """The same with the stages before `cache`."""
    samples: float
    batches: float
    limit: LimitName
    limits: dict[LimitName, float]
    """Samples per second that each limit allows."""
    wire_bytes: float
    """Bytes sent, with the finish transforms at the trainer."""
    finished_samples: float
    """Samples, with the finish transforms at the server."""
    finished_bytes: float
    """Bytes sent, with the finish transforms at the server."""


@dataclass(frozen=True)
class Fleet:
    """The servers that trainers need, each like this host."""

    samples: float
    """Samples per second that all trainers take."""
    servers: int
    utilisation: float
    """The share of their capacity that so many servers use."""
    bytes_per_server: float
    """Bytes per second that each of them sends."""


def forecast(profile: Profile) -> Forecast | None:
    """Returns the forecast; None before all of its figures are measured.

    By operational analysis: with C cores and D CPU seconds of a sample, a server makes at most C/D
    samples per second, and never more than its slowest part can make alone.
    """
    stages = profile.server_stages
    if stages and any(stage.kind == "encode" for stage in stages):
        limits = stage_limits(stages, profile.cores)
        cpu = sum(stage.cost.cpu for stage in stages)
        first = cpu + sum(stage.cost.cpu for stage in profile.stages if stage.cached)
    elif profile.run is not None and not stages and profile.run.samples:
        cpu = first = profile.run.cpu_per_sample
        limits = {"cpu": _rate(profile.cores / cpu if cpu else math.inf)}
        run = profile.run
        whole = Cost(run.cpu_seconds, run.seconds, run.delay_seconds)
        if run.cores_used < _BUSY_SHARE * profile.cores and not _waits_for_cores(whole):
            limits["read"] = run.samples_per_second
    else:
        return None
    name = min(limits, key=lambda each: limits[each])
    samples = limits[name]
    with_finish = {**limits, "cpu": _rate(profile.cores / max(cpu + profile.finish_cpu, 1e-12))}
    finished = min(with_finish.values())
    return Forecast(
        cpu_per_sample=cpu,
        first_epoch_cpu=first,
        samples=samples,
        batches=samples / max(profile.batch_size, 1),
        limit=name,
        limits=limits,
        wire_bytes=samples * (profile.wire_bytes or 0.0),
        finished_samples=finished,
        finished_bytes=finished * (profile.finished_bytes or 0.0),
    )


def stage_limits(stages: Sequence[Stage], cores: int) -> dict[LimitName, float]:
    """Returns the samples per second that each limit allows; those without effect are left out.

    The time that a stage took counts, unless it waited for a core: then its CPU time alone does.
    """
    cpu = sum(stage.cost.cpu for stage in stages)
    limits: dict[LimitName, float] = {"cpu": _rate(cores / max(cpu, 1e-12))}
    reads = [stage.cost for stage in stages if stage.kind in ("read", "map")]
    read = Cost(
        sum(cost.cpu for cost in reads),
        sum(cost.elapsed for cost in reads),
        sum(cost.delay for cost in reads),
    )
    if read.cpu < _BUSY_SHARE * cores * read.elapsed and not _waits_for_cores(read):
        limits["read"] = 1 / read.elapsed
    in_python = sum(
        stage.cost.cpu if _waits_for_cores(stage.cost) else stage.cost.elapsed
        for stage in stages
        if stage.runs_python
    )
    if in_python > 0:
        limits["python"] = 1 / in_python
    return limits


def rate_of_run(made: Forecast, run: Run) -> float:
    """Returns the samples per second that the stages forecast for the cores that a run had."""
    limits = {**made.limits, "cpu": run.cores_used / max(made.first_epoch_cpu, 1e-12)}
    return min(limits.values())


def rate_beside_others(made: Forecast, run: Run, cores: int) -> float:
    """Returns the samples per second with the cores that other processes left free in a run."""
    left = max(0.0, cores - run.other_cores)
    return min({**made.limits, "cpu": left / max(made.cpu_per_sample, 1e-12)}.values())


def fleet(made: Forecast, profile: Profile, *, trainers: int, step_seconds: float) -> Fleet:
    """Returns the servers for trainers that take a batch each in every step, and never wait."""
    wanted = trainers * profile.batch_size / step_seconds
    servers = max(1, math.ceil(wanted / made.samples))
    return Fleet(
        samples=wanted,
        servers=servers,
        utilisation=wanted / (servers * made.samples),
        bytes_per_server=wanted * (profile.wire_bytes or 0.0) / servers,
    )


def _waits_for_cores(cost: Cost) -> bool:
    return cost.delay > _MAX_DELAY_SHARE * cost.elapsed


def _rate(value: float) -> float:
    """Returns a rate that JSON can represent."""
    return min(value, 1e12)
