"""The forecast of a profile: what one server on this host can serve, and how many a job needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infeed_server.profile.figures import Profile, Stage

LimitName = Literal["cpu", "read", "python"]
"""What ends the growth: the cores, the source, or the one interpreter of functions in Python."""

_BUSY_SHARE = 0.7
"""Reading that uses at least this share of the cores is limited by them, not by the storage."""


_SATURATED = 0.85
"""A host that uses at least this share of its cores has none to spare."""


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
        limits = stage_limits(stages, profile.cores, saturated=_is_saturated(profile))
        cpu = sum(stage.cost.cpu for stage in stages)
        first = cpu + sum(stage.cost.cpu for stage in profile.stages if stage.cached)
    elif profile.run is not None and not stages and profile.run.samples:
        cpu = first = profile.run.cpu_per_sample
        limits = {"cpu": _rate(profile.cores / cpu if cpu else math.inf)}
        if not _is_saturated(profile):
            limits["read"] = profile.run.samples_per_second
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


def stage_limits(stages: Sequence[Stage], cores: int, *, saturated: bool) -> dict[LimitName, float]:
    """Returns the samples per second that each limit allows; those without effect are left out.

    Where the host's cores were `saturated`, a stage that took long may have waited for them, and
    its CPU time alone counts.
    """
    cpu = sum(stage.cost.cpu for stage in stages)
    limits: dict[LimitName, float] = {"cpu": _rate(cores / max(cpu, 1e-12))}
    reads = [stage.cost for stage in stages if stage.kind in ("read", "map")]
    elapsed = sum(cost.elapsed for cost in reads)
    if (
        not saturated
        and elapsed > 0
        and sum(cost.cpu for cost in reads) / elapsed < _BUSY_SHARE * cores
    ):
        limits["read"] = 1 / elapsed
    in_python = sum(
        stage.cost.cpu if saturated else stage.cost.elapsed for stage in stages if stage.runs_python
    )
    if in_python > 0:
        limits["python"] = 1 / in_python
    return limits


def at_cores(cpu_per_sample: float, cores: float) -> float:
    """Returns the samples per second of so many cores, if nothing but they is a limit."""
    return cores / max(cpu_per_sample, 1e-12)


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


def _is_saturated(profile: Profile) -> bool:
    """Returns whether all cores were at work while the whole pipeline ran."""
    run = profile.run
    return run is not None and run.cores_used + run.other_cores >= _SATURATED * profile.cores


def _rate(value: float) -> float:
    """Returns a rate that JSON can represent."""
    return min(value, 1e12)
