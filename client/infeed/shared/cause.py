"""Cause: the part of the input that a trainer's batches waited for, and what to change first.

A cause is a rule over counters of both ends, and its text shows the deciding counters. The first
rule that holds is the cause, so each rule may assume that those before it do not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from infeed.shared.report import ServerReport, TrainerReport, merge_processes

_BUSY_SHARE = 0.7
"""Share of the time from which threads, processors or workers count as busy."""

_FULL_SHARE = 0.9
"""Share of the time from which a connection can carry no more."""

_UNSENT_SHARE = 0.25
"""Share of the time with unsent batches from which a trainer does not wait for its requests."""

_SLOW_FACTOR = 4.0
"""Ratio of the other connections' speed to a slow one's; less would flag normal differences."""

_MAX_GROWTH = 16.0
"""Largest factor by which the advice raises the number of worker processes at a time."""

Cause = Literal[
    "missing server",
    "bad samples",
    "storage",
    "Python workers",
    "Python CPU",
    "transforms",
    "data set",
    "serialisation",
    "slow connection",
    "network rate",
    "sending",
    "round trip",
    "client CPU",
    "server budget",
]

HELPED_BY_SERVERS: frozenset[Cause] = frozenset(
    {"storage", "Python CPU", "transforms", "serialisation"}
)
"""The causes that more servers remove."""

_ADVICE: dict[Cause, str] = {
    "missing server": "start it (its log and its host show why it is gone), or remove it from "
    "the target",
    "bad samples": "find them (infeed check --scan, or the quarantine log), and repair or "
    "exclude them (remove)",
    "storage": "read from nearer or faster storage, pack small files into TFRecords, or shuffle in "
    "windows",
    "Python workers": "read with more worker processes: processes: {} at the Python source or "
    "function",
    "Python CPU": "add servers or cores, or make the Python code that reads samples cheaper",
    "transforms": "add servers or cores, or make the transforms cheaper (infeed profile)",
    "data set": "let the dataset do more in parallel (num_parallel_calls, prefetch), or make it "
    "cheaper; more servers do not help, as only one reads it",
    "serialisation": 'leave the finish transforms to the trainer (finish="trainer"), or add cores',
    "slow connection": "find out what slows it (its host, a link or a proxy), or remove its "
    "server from the target",
    "network rate": "send fewer bytes: uint8 and smaller images, with finish transforms at the "
    "trainer; or raise connections, if a network limits each; or use servers behind other links",
    "sending": "find out what holds the batches back: a proxy, or a trainer that receives "
    "slowly (infeed top)",
    "round trip": "request further ahead: raise prefetch_batches and prefetch_bytes",
    "client CPU": 'finish on the accelerator (finish="none", infeed.jax), or free processors of '
    "the trainer's host",
    "server budget": "raise the server's --memory-limit",
}


class Share(float):
    """A share of the time or of processors, which prints as a percentage."""

    def __str__(self) -> str:
        return f"{100 * min(1.0, self):.0f} %"


@dataclass(frozen=True)
class Figures:
    """The counters that a cause follows from. A share counts the time that the report covers."""

    busy: Share
    """The pipeline was making batches: it waited for the source or the transforms."""
    idle: Share
    """It did not."""
    source: Share
    transform: Share
    repair: Share
    """The part of `transform` spent on batches with bad samples."""
    full: Share
    """All streams with requests, of any job, held the maximum of unsent batches."""
    unsent: Share
    """A stream of this job held the maximum."""
    shortage: Share
    """Only the memory limit kept a batch from being started."""
    encoding: float
    """Mean number of threads that encoded batches."""
    python: Share
    workers: int
    processors: Share
    """Share of the servers' processors in use."""
    has_idle_cores: bool
    is_sequential: bool
    client: Share
    finishing: Share
    receiving: Share
    """A batch was in transit, on an average connection."""
    rate: float
    """Megabytes per second."""
    slow_connection: str
    slow_rate: float
    other_rate: float

    @property
    def at_servers(self) -> bool:
        """Whether batches waited to be made while the connections could have carried more."""
        return self.busy >= 0.5 and self.receiving < _FULL_SHARE

    @property
    def from_source(self) -> bool:
        """Whether they waited mostly for the source."""
        return self.at_servers and self.source >= self.transform

    @property
    def worker_noun(self) -> str:
        """The Python workers as the subject of a sentence."""
        return "Python worker was" if self.workers == 1 else f"{self.workers} Python workers were"


@dataclass(frozen=True)
class Rule:
    """A cause and its condition; `text` names the figures that decide."""

    cause: Cause
    holds: Callable[[Figures], bool]
    text: str


_IN_USE = ", with {f.processors} of the servers' processors in use"
_WORKERS = "its {f.worker_noun} busy {f.python} of the time" + _IN_USE
_SHORTAGE = "for {f.shortage} of the time, only the memory limit kept a batch from being begun"

RULES = (
    Rule(
        "bad samples",
        lambda f: f.at_servers and f.repair >= f.busy / 2,
        "the pipeline waited {f.repair} of the time for batches with bad samples",
    ),
    Rule(
        "Python workers",
        lambda f: f.from_source and f.python >= _BUSY_SHARE and f.has_idle_cores,
        _WORKERS,
    ),
    Rule("Python CPU", lambda f: f.from_source and f.python >= _BUSY_SHARE, _WORKERS),
    Rule(
        "server budget",
        lambda f: (
            (f.at_servers and f.shortage >= 0.5)
            and (f.has_idle_cores or (f.from_source and f.workers > 0))
        ),
        _SHORTAGE,
    ),
    Rule(
        "storage",
        lambda f: f.from_source,
        "the pipeline waited {f.source} of the time for the source",
    ),
    Rule(
        "data set",
        lambda f: f.at_servers and f.is_sequential,
        "the pipeline waited {f.transform} of the time for the data set" + _IN_USE,
    ),
    Rule(
        "transforms",
        lambda f: f.at_servers,
        "the pipeline waited {f.transform} of the time for the transforms" + _IN_USE,
    ),
    Rule(
        "client CPU",
        lambda f: f.finishing >= max(_BUSY_SHARE, f.client),
        "its finish transforms were busy {f.finishing} of the time",
    ),
    Rule(
        "client CPU",
        lambda f: f.client >= _BUSY_SHARE,
        "its receiving threads were busy {f.client} of the time",
    ),
    Rule(
        "slow connection",
        lambda f: 0 < _SLOW_FACTOR * f.slow_rate <= f.other_rate,
        "{f.slow_connection} brought {f.slow_rate:.3g} batches/s while requests were in flight, "
        "each other connection {f.other_rate:.3g}",
    ),
    Rule(
        "network rate",
        lambda f: f.receiving >= 0.5,
        "a batch was under way {f.receiving} of the time, at {f.rate:.0f} MB/s",
    ),
    Rule(
        "serialisation",
        lambda f: f.full >= 0.5 and f.encoding >= 0.5,
        "{f.encoding:.1f} threads encoded batches, and there was no room for more {f.full} of the "
        "time",
    ),
    Rule("server budget", lambda f: f.shortage >= 0.5, _SHORTAGE),
    Rule(
        "sending",
        lambda f: f.unsent >= _UNSENT_SHARE,
        "unsent batches filled a stream {f.unsent} of the time, and one was under way "
        "{f.receiving} of it",
    ),
    Rule(
        "round trip",
        lambda f: f.idle >= 0.5,
        "the pipeline had nothing to make for it {f.idle} of the time",
    ),
)
"""The last rule holds when no other does: a pipeline that is not busy is idle."""


def find_cause(trainer: TrainerReport, servers: Collection[ServerReport]) -> tuple[Cause, str]:
    """Returns what a trainer's batches waited for, and the figures that show it."""
    figures = figures_of(trainer, merge_processes(servers))
    rule = next(rule for rule in RULES if rule.holds(figures))
    return rule.cause, rule.text.format(f=figures)


def figures_of(trainer: TrainerReport, server: ServerReport) -> Figures:
    """Returns the counters of a trainer and its servers as shares of the time."""
    streams = max(1, trainer.streams)
    busy = server.busy_seconds / server.seconds
    return Figures(
        busy=Share(busy),
        idle=Share(max(0.0, 1 - busy)),
        source=Share(server.source_seconds / server.seconds),
        transform=Share(server.transform_seconds / server.seconds),
        repair=Share(server.repair_seconds / server.seconds),
        full=Share(server.no_budget_seconds / server.seconds),
        unsent=Share(server.unsent_seconds / server.seconds),
        shortage=Share(server.shortage_seconds / server.seconds),
        encoding=server.encode_seconds / server.seconds,
        python=Share(server.python_share),
        workers=server.python_workers,
        processors=Share(server.cpu_share),
        has_idle_cores=server.cpu_seconds < _BUSY_SHARE * server.seconds * server.usable_cores,
        is_sequential=server.is_sequential,
        client=Share(trainer.cpu_seconds / (trainer.seconds * streams)),
        finishing=Share(trainer.finish_seconds / trainer.seconds),
        receiving=Share(trainer.receive_seconds / (trainer.seconds * streams)),
        rate=trainer.bytes / trainer.seconds / 1e6,
        slow_connection=trainer.slow_connection,
        slow_rate=trainer.slow_rate,
        other_rate=trainer.other_rate,
    )


def advice_for(cause: Cause, servers: Collection[ServerReport], demand: float) -> str:
    """Returns what to change first; `demand` is the job's consumption in batches per second."""
    if cause != "Python workers":
        return _ADVICE[cause]
    server, workers = merge_processes(servers), max(report.python_workers for report in servers)
    idle = server.seconds * server.usable_cores / max(server.cpu_seconds, 1e-6)
    needed = demand * server.seconds / server.batches if server.batches else math.inf
    growth = min(needed, idle, _MAX_GROWTH)
    return _ADVICE[cause].format(max(workers + 1, math.ceil(workers * growth)))
