"""Cause: which part of the input the batches of a trainer waited for, and what to change first.

It follows from what the servers' pipelines waited for, and from what the client did meanwhile:

    pipeline waits for    beside it                    cause
    the source            Python workers all busy      Python workers, or Python CPU
                          else                         storage
    the transforms        processors idle, no memory   server budget
                          else                         transforms, or data set
    requests, or room     client's threads busy        client CPU
    to send               client receives              network rate
                          servers encode               serialisation
                          neither                      round trip
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal

from infeed.shared.report import ServerReport, TrainerReport, merge_processes

_BUSY_SHARE = 0.7
"""Share of the time from which threads, processors or workers count as busy."""

_FULL_SHARE = 0.9
"""Share of the time from which a connection can carry no more."""

_MAX_GROWTH = 16.0
"""The most by which more worker processes are advised at a time."""

Cause = Literal[
    "lost server",
    "storage",
    "Python workers",
    "Python CPU",
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
    "lost server": "start it again if it is gone (its log and its host say why), or leave it out "
    "of the target",
    "storage": "read from nearer or faster storage, pack small files into TFRecords, or shuffle in "
    "windows",
    "Python workers": "read with more worker processes: processes: {} at the Python source or "
    "function",
    "Python CPU": "add servers or cores, or make the Python code where samples are read cheaper",
    "transforms": "add servers or cores, or make the transforms cheaper (infeed profile)",
    "data set": "let the data set do more at a time (num_parallel_calls, prefetch), or make it "
    "cheaper; more servers do not help, for one reads it",
    "serialisation": 'leave the finish transforms to the trainer (finish="trainer"), or add cores',
    "network rate": "send fewer bytes: uint8 and smaller images, with finish transforms at the "
    "trainer; or raise connections, if a network limits each; or use servers behind other links",
    "round trip": "request further ahead: raise prefetch_batches and prefetch_bytes",
    "client CPU": 'finish on the accelerator (finish="none", infeed.jax), or free processors of '
    "the trainer's host",
    "server budget": "raise the server's --memory-limit",
}


def find_cause(trainer: TrainerReport, servers: Collection[ServerReport]) -> tuple[Cause, str]:
    """Returns what the batches of a trainer waited for, and the figures that show it."""
    server = merge_processes(servers)
    busy = server.busy_seconds / server.seconds
    streams = max(1, trainer.streams)
    receiving = trainer.receive_seconds / (trainer.seconds * streams)
    if busy >= 0.5 and receiving < _FULL_SHARE:  # else the connection is the limit
        return _cause_at_servers(server)
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
    encoding = server.encode_seconds / server.seconds  # threads that encode, on average
    if server.no_budget_seconds >= 0.5 * server.seconds and encoding >= 0.5:
        return "serialisation", f"{encoding:.1f} threads encoded batches"
    if server.shortage_seconds >= 0.5 * server.seconds:
        return "server budget", _shortage_text(server)
    return "round trip", f"the pipeline had nothing to make {_percent(1 - busy)} of the time"


def advice_for(cause: Cause, servers: Collection[ServerReport], demand: float) -> str:
    """Returns what to change first; `demand` is what the job would take, in batches per second."""
    if cause != "Python workers":
        return _ADVICE[cause]
    server, workers = merge_processes(servers), max(report.python_workers for report in servers)
    idle = server.seconds * server.usable_cores / max(server.cpu_seconds, 1e-6)
    needed = demand * server.seconds / server.batches if server.batches else math.inf
    growth = min(needed, idle, _MAX_GROWTH)
    return _ADVICE[cause].format(max(workers + 1, math.ceil(workers * growth)))


def _cause_at_servers(server: ServerReport) -> tuple[Cause, str]:
    in_use = f"with {_percent(server.cpu_share)} of the servers' processors in use"
    has_idle_cores = server.cpu_seconds < _BUSY_SHARE * server.seconds * server.usable_cores
    is_from_source = server.source_seconds >= server.busy_seconds / 2
    if is_from_source and server.python_share >= _BUSY_SHARE:
        workers = server.python_workers
        noun = "Python worker was" if workers == 1 else f"{workers} Python workers were"
        detail = f"its {noun} busy {_percent(server.python_share)} of the time, {in_use}"
        return ("Python workers" if has_idle_cores else "Python CPU"), detail
    has_idle_workers = is_from_source and server.python_workers
    is_short = server.shortage_seconds >= 0.5 * server.seconds
    if is_short and (has_idle_cores or has_idle_workers):
        return "server budget", _shortage_text(server)
    if is_from_source:
        share = _percent(server.source_seconds / server.seconds)
        return "storage", f"the pipeline waited {share} of the time for the source"
    what: Cause = "data set" if server.is_sequential else "transforms"
    share = _percent(server.transform_seconds / server.seconds)
    return what, f"the pipeline waited {share} of the time for the {what}, {in_use}"


def _shortage_text(server: ServerReport) -> str:
    share = _percent(server.shortage_seconds / server.seconds)
    return f"for {share} of the time, only the memory limit kept a batch from being begun"


def _percent(share: float) -> str:
    return f"{100 * min(1.0, share):.0f} %"
