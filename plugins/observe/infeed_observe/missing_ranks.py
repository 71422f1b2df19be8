"""Missing ranks: jobs that have lacked a rank for a minute, with the possible reason."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import count, islice

from infeed_observe.views import JobView

log = logging.getLogger(__name__)

MISSING_SECONDS = 60.0
"""Seconds before a missing rank is reported: with fewer, ranks that only start later are."""

_MAX_NAMED = 4
"""Ranks named in a warning: a job may have thousands."""


class MissingRanks:
    """Follows the jobs of a server. `update` is called every second; not thread-safe."""

    def __init__(self) -> None:
        self.warnings: dict[str, str] = {}
        """A line for each job that has lacked a rank for a minute, by the job's id."""
        self._since: dict[str, float] = {}

    def update(self, now: float, jobs: Mapping[str, Sequence[JobView]]) -> None:
        """Takes the jobs of each pipeline; logs new warnings."""
        lacking = {
            job.id: (job, listed)
            for listed in jobs.values()
            for job in listed
            if len(_ranks(job)) < job.world_size and not _has_own_server(job)
        }
        self._since = {name: self._since.get(name, now) for name in lacking}
        warnings = {
            name: _text(job, listed)
            for name, (job, listed) in lacking.items()
            if now >= self._since[name] + MISSING_SECONDS
        }
        for name in warnings.keys() - self.warnings.keys():
            log.warning("job %s: %s", name, warnings[name])
        self.warnings = warnings


def _text(job: JobView, jobs: Sequence[JobView]) -> str:
    ranks, world_size = _ranks(job), job.world_size
    missing = world_size - len(ranks)
    named = islice((rank for rank in count() if rank not in ranks), min(missing, _MAX_NAMED))
    names = ", ".join(map(str, named))
    names += f" and {missing - _MAX_NAMED} more" * (missing > _MAX_NAMED)
    verb = "rank {} of {} is" if missing == 1 else "ranks {} of {} are"
    text = f"{verb.format(names, world_size)} not connected to this server"
    equal = [other for other in jobs if other.base == job.base and other is not job]
    for other in equal:
        for rank in sorted(_ranks(other) & ranks):
            peers = " and ".join(sorted({_peer(part, rank) for part in (job, other)}))
            return f"{text}, and two trainers have rank {rank} ({peers}); give each its own rank"
    return f"{text}; start it, or look in its log for the servers that it connects to"


def _ranks(job: JobView) -> set[int]:
    return {trainer.rank for trainer in job.trainers}


def _peer(job: JobView, rank: int) -> str:
    return next(trainer.peer for trainer in job.trainers if trainer.rank == rank)


def _has_own_server(job: JobView) -> bool:
    """Returns whether all trainers are on this host: each host of a job may have its own server."""
    return all(trainer.peer == "unix" for trainer in job.trainers)
