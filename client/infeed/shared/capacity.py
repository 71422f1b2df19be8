"""Capacity: what a job would consume without waiting, and the most that servers can produce."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from infeed.shared.report import RankReport, ServerReport

MODERATE_SHARE = 0.05
"""Share of the step time spent waiting from which a job counts as moderately input-bound."""

MIN_BATCHES = 5
"""Batches that servers must have sent before a number of servers is derived from them."""

MAX_SERVERS = 1_000_000
"""Largest number of servers to recommend: a trainer may report steps of zero length."""

_LOADED_SHARE = 0.9
"""Share of busy time from which a pipeline's rate is the most it can produce."""

_MIN_USED_SHARE = 1e-3
"""CPU share below which a server's rate is not extrapolated: at most a thousandfold."""

_MIN_STEP_SECONDS = 1e-3
_MIN_WORK_SHARE = 0.05
"""A job that works less than this share, in shorter steps, is an empty loop."""


def consumption(ranks: Collection[RankReport], world_size: int) -> float:
    """Returns the batches per second that a job would consume without waiting, at its slowest
    rank's pace; infinite if it does no work."""
    slowest = 0.0
    for report in (rank.report for rank in ranks):
        step = report.step_seconds or 0.0
        if step >= _MIN_STEP_SECONDS or step * report.steps >= _MIN_WORK_SHARE * report.seconds:
            slowest = max(slowest, step)
    return world_size / slowest if slowest else math.inf


def servers_in_use(ranks: Collection[RankReport], world_size: int) -> int:
    """Returns the number of servers of a job, estimated from the ranks seen so far."""
    streams = max((rank.report.streams for rank in ranks), default=0)
    return math.ceil(streams * world_size / max(1, len({rank.rank for rank in ranks})))


def capacity(server: ServerReport, *, alone: bool = False) -> float | None:
    """Returns the batches per second that a server can produce; None if it sent none.

    A loaded server produces batches ÷ busy time. One with time to spare is limited by its
    processors, minus those that other processes use unless it is to run `alone`. Other processes
    may give way, so the result is never less than the rate over the time in which it had requests.
    """
    if not server.batches or not server.seconds:
        return None
    if alone:
        server = replace(server, available_cores=server.cores)
    busy = server.busy_seconds / server.seconds
    usable = server.seconds * server.usable_cores
    cpu = min(1.0, server.cpu_seconds / usable) if usable else 0.0
    if busy < _LOADED_SHARE:
        active = max(0.0, 1 - server.no_request_seconds / server.seconds)
        used = min(cpu, max(active, server.cpu_share))
    else:
        used = max(busy, cpu)
    used = max(used, server.source_seconds / server.seconds, _MIN_USED_SHARE)
    return server.processes * server.batches / server.seconds / used


def enough_servers(
    ranks: Collection[RankReport], world_size: int, servers: Collection[ServerReport]
) -> int | None:
    """Returns how many servers like these would keep up with a job and what else they serve; None
    if the job does no work or the servers have sent too few batches."""
    capacities = [known for known in map(capacity, servers) if known is not None]
    demand = consumption(ranks, world_size)
    few = sum(server.batches for server in servers) < MIN_BATCHES
    if not capacities or few or not math.isfinite(demand):
        return None
    sent = sum(server.batches / server.seconds for server in servers)
    own = sum(rank.report.steps / rank.report.seconds for rank in ranks if rank.report.seconds)
    others = max(0.0, sent - own * world_size / max(1, len(ranks)))
    needed = (demand + others) * len(capacities) / sum(capacities)
    return max(1, math.ceil(min(needed, MAX_SERVERS)))
