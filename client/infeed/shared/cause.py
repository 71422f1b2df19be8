"""Cause: which part of the input the batches of a trainer waited for, and what to change first.

It follows from what the servers' pipelines waited for, and from what the client did meanwhile:

    pipeline waits for    beside it                    cause
    the source            Python workers all busy      Python workers, or Python CPU
                          one sample takes long        slow samples
                          neither                      storage
    the transforms        processors idle, no memory   server budget
                          else                         transforms, or data set
    room to send          client's threads busy        client CPU
                          client receives              network rate
                          servers encode               serialisation
    requests              client's threads busy        client CPU
                          client receives              network rate
                          neither                      round trip

A connection that is never silent is the limit, whatever the pipeline does for other jobs.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from infeed.shared.report import ServerReport, TrainerReport

_BUSY_SHARE = 0.7
"""Share of the time from which threads, processors or workers count as busy."""

_FULL_SHARE = 0.9
"""Share of the time from which a connection can carry no more."""

_OTHERS_SHARE = 0.1
"""Share of the servers' processors from which their use by other processes is named."""

_SLOW_FACTOR = 4.0
_SLOW_SHARE = 0.5
"""A sample is slow that takes so many times the mean, and this share of the time between batches:
its batch waits for it alone."""

_WAITING_CPU_SHARE = 0.1
"""Processor time of a server, as a share of its workers' busy time, below which they wait rather
than compute: more of them help, also where other processes use the processors."""

_MAX_GROWTH = 16.0
"""The most by which more worker processes are advised at a time."""

Cause = Literal[
    "lost server",
    "storage",
    "Python workers",
    "Python CPU",
    "slow samples",
    "transforms",
    "data set",
    "serialisation",
    "network rate",
    "round trip",
    "client CPU",
    "server budget",
]

HELPED_BY_SERVERS: frozenset[Cause] = frozenset(
    {"storage", "Python CPU", "transforms", "serialisation"}
)
"""The causes that more servers remove."""

_ADVICE: dict[Cause, str] = {
    "lost server": "start it again (its log and its host say why it went), or leave it out of the "
    "target",
    "storage": "read from nearer or faster storage, pack small files into TFRecords, or shuffle in "
    "windows",
    "Python CPU": "add servers or cores, or make the Python code where samples are read cheaper",
    "slow samples": "leave such samples out, or make them as cheap to read as the others",
    "transforms": "add servers or cores, or make the transforms cheaper (infeed profile)",
    "data set": "let the data set do more at a time (num_parallel_calls, prefetch), or make it "
    "cheaper; more servers do not help, for one reads it",
    "serialisation": 'leave the finish transforms to the trainer (finish="trainer"), or add cores',
    "network rate": "send fewer bytes: uint8 and smaller images, with finish transforms at the "
    "trainer; or use servers behind other links",
    "round trip": "request further ahead: raise prefetch_batches and prefetch_bytes",
    "client CPU": 'finish on the accelerator (finish="none", infeed.jax), or free processors of '
    "the trainer's host",
    "server budget": "raise the server's --memory-limit",
}


@dataclass(frozen=True)
class _Servers:
    """What several servers did together."""

    reports: Collection[ServerReport]

    def total(self, name: str) -> float:
        return float(sum(getattr(report, name) for report in self.reports))

    def share(self, name: str) -> float:
        """Returns a time as a share of the servers' time."""
        return self.total(name) / self.total("seconds")

    def mean(self, name: str) -> float:
        weighted = sum(report.seconds * getattr(report, name) for report in self.reports)
        return float(weighted) / self.total("seconds")

    @property
    def has_idle_processors(self) -> bool:
        return self.share("cpu_seconds") < _BUSY_SHARE * self.mean("usable_cores")

    @property
    def python_workers_wait(self) -> bool:
        """Whether the Python workers were busy without using processors."""
        return self.total("cpu_seconds") < _WAITING_CPU_SHARE * self.total("python_seconds")

    def processors_text(self) -> str:
        cores = self.mean("cores")
        cpu = self.share("cpu_seconds") / cores if cores else 0.0
        return f"with {_percent(cpu)} of the servers' processors in use"

    def shortage_text(self) -> str:
        return (
            f"for {_percent(self.share('shortage_seconds'))} of the time, only the memory limit "
            "kept a batch from being begun"
        )


def find_cause(trainer: TrainerReport, servers: Collection[ServerReport]) -> tuple[Cause, str]:
    """Returns what the batches of a trainer waited for, and the figures that show it."""
    used = _Servers(servers)
    busy = used.share("busy_seconds")
    streams = max(1, trainer.streams)
    receiving = trainer.receive_seconds / (trainer.seconds * streams)
    if busy >= 0.5 and receiving < _FULL_SHARE:
        return _cause_at_servers(used)
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
    encoding = used.share("encode_seconds")  # threads that encode, on average
    if used.share("no_budget_seconds") >= 0.5 and encoding >= 0.5:
        return "serialisation", f"{encoding:.1f} threads encoded batches"
    if used.share("shortage_seconds") >= 0.5:
        return "server budget", used.shortage_text()
    return "round trip", f"the pipeline had nothing to make {_percent(1 - busy)} of the time"


def advice_for(cause: Cause, servers: Collection[ServerReport], demand: float) -> str:
    """Returns what to change first; `demand` is what the job would take, in batches per second."""
    if cause != "Python workers":
        return _ADVICE[cause]
    used = _Servers(servers)
    workers = max(server.python_workers for server in servers)
    rate = sum(server.batches / server.seconds for server in servers)
    growth = demand / rate if rate else math.inf
    if not used.python_workers_wait:  # workers that compute can use the idle processors
        growth = min(growth, used.mean("usable_cores") / max(used.share("cpu_seconds"), 1e-6))
    advised = max(workers + 1, math.ceil(workers * min(growth, _MAX_GROWTH)))
    return f"read with more worker processes: processes: {advised} at the Python source or function"


def _cause_at_servers(used: _Servers) -> tuple[Cause, str]:
    busy, source = used.share("busy_seconds"), used.share("source_seconds")
    is_from_source = source >= busy / 2
    workers = int(used.total("python_workers"))
    python = used.share("python_seconds") / max(1e-9, used.mean("python_workers"))
    if is_from_source and workers and python >= _BUSY_SHARE:
        noun = "Python worker was" if workers == 1 else f"{workers} Python workers were"
        detail = f"its {noun} busy {_percent(python)} of the time, {used.processors_text()}"
        more_help = used.has_idle_processors or used.python_workers_wait
        return ("Python workers" if more_help else "Python CPU"), detail
    has_idle_workers = bool(is_from_source and workers)
    is_short = used.share("shortage_seconds") >= 0.5
    if is_short and (has_idle_workers or used.has_idle_processors):
        return "server budget", used.shortage_text()
    if is_from_source:
        slowest = max(used.reports, key=lambda server: server.slowest_sample_seconds)
        if _is_slow(slowest):
            return "slow samples", (
                f"sample {slowest.slowest_sample} took {slowest.slowest_sample_seconds:.2g} s, "
                f"while its {workers} Python workers were busy {_percent(python)} of the time"
            )
        return "storage", f"the pipeline waited {_percent(source)} of the time for the source"
    cores = used.mean("cores")
    others = (cores - used.mean("usable_cores")) / cores if cores else 0.0
    and_others = f", {_percent(others)} by other processes" * (others >= _OTHERS_SHARE)
    what: Cause = "data set" if used.total("is_sequential") else "transforms"
    return what, (
        f"the pipeline waited {_percent(busy - source)} of the time for the {what}, "
        f"{used.processors_text()}{and_others}"
    )


def _is_slow(server: ServerReport) -> bool:
    """Returns whether the slowest sample of a server keeps batches waiting."""
    took = server.slowest_sample_seconds
    mean = server.python_seconds / max(1, server.python_samples)
    return took >= _SLOW_FACTOR * mean and took * server.batches >= _SLOW_SHARE * server.seconds


def _percent(share: float) -> str:
    return f"{100 * min(1.0, share):.0f} %"
