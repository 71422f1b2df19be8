"""Two ranks train on three servers to which everything happens; then on one to which nothing does.

Every batch of the first run has to be that of the second.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.harness.server import Launch, spawn
from tests.stress.chaos.audit import Audit, audit, whole_epochs
from tests.stress.chaos.fault_schedule import Event, Kind, schedule
from tests.stress.chaos.job import Job
from tests.stress.chaos.journal import Step, committed
from tests.stress.chaos.latency import SHOWN, Wait, longest_waits
from tests.stress.chaos.outages import Outages
from tests.stress.chaos.pipelines import Served
from tests.stress.chaos.servers import FaultyServer
from tests.stress.chaos.setup import PROXIED, SERVERS, Setup
from tests.stress.chaos.trainer import Task

RANKS = 2

_FIRST_STEPS = 5
"""Taken before the first event."""

_LAST_STEPS = 10
"""Taken behind the last event, when every server is back."""

_LEAST_EPOCHS = 3


@dataclass(frozen=True)
class ServerFaults:
    """What became of it. `batches` are those of all ranks, `equal` those that were the same.

    Waits are in seconds; a needless one is a wait without the time in which there was no server.
    """

    pipeline: str
    seed: int
    events: dict[str, int]
    seconds: float
    batches: int
    equal: int
    audit: Audit
    longest_wait: float
    longest_needless_wait: float
    waits_over_a_second: int
    waits: list[Wait]
    hedges: int
    reconnects: int
    resets: int
    starts: int
    unclean: int

    @property
    def exact(self) -> bool:
        return self.batches == self.equal > 0 and self.audit.exact


def run_server_faults(
    served: Served, folder: Path, seed: int, count: int, pace: float, launch: Launch = spawn
) -> ServerFaults:
    """Raises `HarnessError` when a server, or a rank, ends by itself."""
    events = schedule(seed, count, pace, SERVERS, PROXIED, served.reset_bytes)
    with ExitStack() as cleanup:
        setup = cleanup.enter_context(Setup(served, folder, launch))
        setup.start()
        outages = cleanup.enter_context(Outages(lambda: setup.can_answer))
        job = _job(served, folder / "disturbed", setup.target, launch, served.pause)
        cleanup.enter_context(job)
        job.wait_until(lambda: min(job.taken) >= _FIRST_STEPS, "the first steps are taken")
        begin = time.monotonic()
        happened = _play(events, setup, job, begin)
        setup.start()
        stride = RANKS * served.batch_size
        least = math.ceil(_LEAST_EPOCHS * served.sample_count / stride)
        steps = max(least, max(job.taken) + _LAST_STEPS)
        job.end_behind(steps)
        job.wait()
        seconds = time.monotonic() - begin
    ranks = committed(job.journals)
    summaries = [journal.summary for journal in job.journals]
    undisturbed = _undisturbed(served, folder, steps, launch)
    flat = [step for rank in ranks for step in rank]
    found = longest_waits(ranks, begin, happened, outages)
    return ServerFaults(
        pipeline=served.name,
        seed=seed,
        events={kind.value: sum(event.kind is kind for event in events) for kind in Kind},
        seconds=seconds,
        batches=len(flat),
        equal=_equal(ranks, undisturbed, steps),
        audit=audit(flat, served.sample_count, whole_epochs(ranks, served.sample_count)),
        longest_wait=max(wait.seconds for wait in found),
        longest_needless_wait=found[0].needless,
        waits_over_a_second=sum(wait.seconds > 1 for wait in found),
        waits=found[:SHOWN],
        hedges=_sum(summaries, "hedges"),
        reconnects=_sum(summaries, "reconnects"),
        resets=setup.proxy.resets,
        starts=sum(server.starts for server in setup.servers),
        unclean=sum(server.unclean for server in setup.servers),
    )


def _job(served: Served, folder: Path, target: str, launch: Launch, pause: float) -> Job:
    task = Task(
        target=target,
        pipeline=served.name,
        world_size=RANKS,
        batch_size=served.batch_size,
        pause=pause,
        prefetch_bytes=served.prefetch_bytes,
    )
    return Job(folder, task, launch)


def _play(events: list[Event], setup: Setup, job: Job, begin: float) -> list[tuple[float, Event]]:
    """Lets the events happen, in their order; a machine that is slow makes all of them later."""
    happened = []
    late = 0.0
    for event in events:
        due = begin + event.at + late
        job.wait_until(partial(_is_past, due), "it is time")
        job.wait_until(partial(setup.ready_for, event), f"it can happen: {event}")
        late += time.monotonic() - due
        setup.apply(event)
        happened.append((time.monotonic(), event))
    return happened


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


def _undisturbed(served: Served, folder: Path, steps: int, launch: Launch) -> list[list[Step]]:
    with (
        FaultyServer(served.definition, folder, "undisturbed", launch) as server,
        _job(served, folder / "undisturbed", server.address, launch, pause=0) as job,
    ):
        job.end_behind(steps)
        job.wait()
        return committed(job.journals)


def _equal(ranks: list[list[Step]], undisturbed: list[list[Step]], steps: int) -> int:
    """Batches that are the same, with the cursor behind each; none where their number differs."""
    if any(len(rank) != steps for rank in (*ranks, *undisturbed)):
        return 0
    pairs = [
        pair
        for rank, other in zip(ranks, undisturbed, strict=True)
        for pair in zip(rank, other, strict=True)
    ]
    return sum(
        (one.start, one.digest, one.cursor) == (other.start, other.digest, other.cursor)
        for one, other in pairs
    )


def _sum(summaries: list[dict[str, Any]], name: str) -> int:
    return sum(int(summary[name]) for summary in summaries)


__all__ = ["ServerFaults", "run_server_faults"]
