"""Verdict: whether the input limits a training, which part of the input, and what would help.

The words and limits of the first answer are those of TensorFlow's profiler. The cause follows from
what the servers' pipelines waited for, and from what the client did meanwhile:

    pipeline waits for    client              cause
    the source                                storage
    the transforms                            transforms
    room to send          its threads busy    client CPU
                          receives            network rate
                          neither             serialisation, or the server's memory budget
    requests              its threads busy    client CPU
                          receives            network rate
                          neither             round trip
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from infeed.report import RankReport, ServerReport, TrainerReport

MODERATE_SHARE = 0.05
HIGH_SHARE = 0.20
"""Shares of the step time spent waiting from which a training is moderately, highly input-bound."""

_BUSY_SHARE = 0.7
"""Share of the time from which threads, processors or a connection count as busy."""

_OTHERS_SHARE = 0.1
"""Share of the servers' processors from which their use by other processes is named."""

_LOADED_SHARE = 0.9
"""Share of the time that a pipeline works from which its rate is all that it can make."""

_MIN_USED_SHARE = 1e-3
"""A server that used less is not promised to make more than a thousand times as much."""

MAX_SERVERS = 1_000_000
"""Largest number of servers that is named: a trainer may report steps without a length."""

_MIN_STEPS = 1

Level = Literal["unknown", "not input-bound", "moderately input-bound", "highly input-bound"]

Cause = Literal[
    "storage",
    "transforms",
    "serialisation",
    "network rate",
    "round trip",
    "client CPU",
    "server budget",
]

_ADVICE: dict[Cause, str] = {
    "storage": "read from nearer or faster storage, pack small files into TFRecords, or shuffle in "
    "windows",
    "transforms": "add servers or cores, or make the transforms cheaper (infeed profile)",
    "serialisation": 'leave the finish transforms to the trainer (finish="trainer"), or add cores',
    "network rate": "send fewer bytes: uint8 and smaller images, with finish transforms at the "
    "trainer; or use servers behind other links",
    "round trip": "request further ahead: raise prefetch_batches and prefetch_bytes",
    "client CPU": 'finish on the accelerator (finish="none", infeed.jax), or free processors of '
    "the trainer's host",
    "server budget": "raise the server's --memory-limit",
}


@dataclass(frozen=True)
class Verdict:
    """The answer for one job; `str` is the same line everywhere."""

    level: Level
    wait_share: float = 0.0
    """Share of the time that the worst rank waited, 0 to 1."""
    rank: int = 0
    world_size: int = 1
    cause: Cause | None = None
    """None if not input-bound, or if no server has reported."""
    detail: str = ""
    """The figures that show the cause."""
    servers: int | None = None
    """Servers like the measured ones that would be enough; None: more would not help, or unknown.
    """
    advice: str = ""
    """What to change first."""

    @property
    def is_input_bound(self) -> bool:
        """Whether the training waits for a moderate or high share of its time."""
        return self.level in ("moderately input-bound", "highly input-bound")

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict for JSON; `text` is the line."""
        return {
            "level": self.level,
            "wait_share": self.wait_share,
            "rank": self.rank,
            "world_size": self.world_size,
            "cause": self.cause,
            "detail": self.detail,
            "servers": self.servers,
            "advice": self.advice,
            "text": str(self),
        }

    def __str__(self) -> str:
        if self.level == "unknown":
            return f"no verdict yet: {self.detail}"
        of = f"rank {self.rank} of {self.world_size}" if self.world_size > 1 else "the trainer"
        line = f"{self.level}: {of} waited {100 * self.wait_share:.1f} % of the time"
        if not self.is_input_bound:
            return f"{line}; the input keeps up"
        if self.cause is None:
            return f"{line}; no server has reported the cause"
        line += f"; cause: {self.cause} ({self.detail})"
        if self.servers is not None:
            line += f"; {self.servers} such server{'s' * (self.servers > 1)} would be enough"
        return f"{line}; first: {self.advice}"


def judge(
    ranks: Collection[RankReport], world_size: int, servers: Collection[ServerReport]
) -> Verdict:
    """Returns the verdict on a job by its worst rank, from the last report of each server."""
    measured = [each for each in ranks if each.report.steps >= _MIN_STEPS]
    if not measured:
        steps = max((each.report.total_steps for each in ranks), default=0)
        return Verdict("unknown", detail=f"{steps} batch{'es' * (steps != 1)} taken")
    worst = max(measured, key=lambda each: each.report.wait_share)
    share = worst.report.wait_share
    verdict = Verdict(_level(share), share, worst.rank, world_size)
    reports = [each for each in servers if each.seconds]
    if not (verdict.is_input_bound and reports):
        return verdict
    cause, detail = find_cause(worst.report, reports)
    helps = cause in ("storage", "transforms", "serialisation")
    enough = enough_servers(measured, world_size, reports) if helps else None
    return replace(verdict, cause=cause, detail=detail, servers=enough, advice=_ADVICE[cause])


def _level(wait_share: float) -> Level:
    if wait_share < MODERATE_SHARE:
        return "not input-bound"
    return "highly input-bound" if wait_share >= HIGH_SHARE else "moderately input-bound"


def find_cause(trainer: TrainerReport, servers: Collection[ServerReport]) -> tuple[Cause, str]:
    """Returns what the batches of a trainer waited for, and the figures that show it."""
    seconds = sum(each.seconds for each in servers)
    busy = sum(each.busy_seconds for each in servers) / seconds
    source = sum(each.source_seconds for each in servers) / seconds
    cores = sum(each.seconds * each.cores for each in servers)
    cpu = sum(each.cpu_seconds for each in servers) / cores if cores else 0.0
    no_budget = sum(each.no_budget_seconds for each in servers) / seconds
    if busy >= 0.5:
        if source >= busy / 2:
            return "storage", f"the pipeline waited {_percent(source)} of the time for the source"
        not_usable = sum(each.seconds * (each.cores - each.usable_cores) for each in servers)
        others = not_usable / cores if cores else 0.0
        and_others = f", {_percent(others)} by other processes" * (others >= _OTHERS_SHARE)
        return "transforms", (
            f"the pipeline waited {_percent(busy - source)} of the time for the transforms, with "
            f"{_percent(cpu)} of the servers' processors in use{and_others}"
        )
    streams = max(1, trainer.streams)
    receiving = trainer.receive_seconds / (trainer.seconds * streams)
    client = trainer.cpu_seconds / (trainer.seconds * streams)
    finishing = trainer.finish_seconds / trainer.seconds
    if max(client, finishing) >= _BUSY_SHARE:
        what = "finish transforms" if finishing >= client else "receiving threads"
        return "client CPU", f"its {what} were busy {_percent(max(client, finishing))} of the time"
    if receiving >= 0.5:
        rate = trainer.bytes / trainer.seconds / 1e6
        return "network rate", (
            f"a batch was under way {_percent(receiving)} of the time, at {rate:.0f} MB/s"
        )
    if no_budget < 0.5:
        idle = 1 - busy - no_budget
        return "round trip", f"the pipeline had no request {_percent(idle)} of the time"
    encoding = sum(each.encode_seconds for each in servers) / seconds
    if encoding >= 0.5:
        return "serialisation", f"{encoding:.1f} threads encoded batches"
    return "server budget", f"batches waited for room {_percent(no_budget)} of the time"


def consumption(ranks: Collection[RankReport], world_size: int) -> float:
    """Returns the batches per second that a job would take without any wait.

    The slowest rank sets the pace, and each rank takes one batch in a step.
    """
    steps = [each.report.step_seconds for each in ranks if each.report.steps >= _MIN_STEPS]
    slowest = max((each for each in steps if each is not None), default=0.0)
    return world_size / slowest if slowest else math.inf


def capacity(server: ServerReport) -> float | None:
    """Returns the batches per second that a server can make, by operational analysis.

    While it is loaded, it makes batches ÷ busy time; a server with time to spare is limited by its
    processors, of which a batch takes the measured time. Processors that other processes use do
    not count. If the report is of one of several processes, the others can make as much. None if
    it sent no batch.
    """
    if not server.batches or not server.seconds:
        return None
    busy = server.busy_seconds / server.seconds
    usable = server.seconds * server.usable_cores
    cpu = min(1.0, server.cpu_seconds / usable) if usable else 0.0
    used = cpu if busy < _LOADED_SHARE else max(busy, cpu)
    used = max(used, server.source_seconds / server.seconds, _MIN_USED_SHARE)
    return server.processes * server.batches / server.seconds / used


def enough_servers(
    ranks: Collection[RankReport], world_size: int, servers: Collection[ServerReport]
) -> int | None:
    """Returns how many servers like these would keep a job, and what else they serve, going."""
    capacities = [each for each in map(capacity, servers) if each is not None]
    demand = consumption(ranks, world_size)
    if not capacities or not math.isfinite(demand):
        return None
    sent = sum(each.batches / each.seconds for each in servers)
    own = sum(each.report.steps / each.report.seconds for each in ranks if each.report.seconds)
    others = max(0.0, sent - own * world_size / max(1, len(ranks)))
    needed = (demand + others) * len(capacities) / sum(capacities)
    return max(1, math.ceil(min(needed, MAX_SERVERS)))


def _percent(share: float) -> str:
    return f"{100 * min(1.0, share):.0f} %"
