"""Server faults: two ranks train on three servers with faults, then on one without.

Every batch of the first run must equal the second's.
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
from tests.stress.chaos.audit import Audit, audit, complete_epochs
from tests.stress.chaos.fault_schedule import (
    SERVER_START_SECONDS,
    Event,
    FaultKind,
    draw_schedule,
)
from tests.stress.chaos.job import Job
from tests.stress.chaos.journal import Step, committed_steps
from tests.stress.chaos.pipelines import ServedPipeline
from tests.stress.chaos.servers import FaultyServer
from tests.stress.chaos.setup import PROXIED, SERVERS, Setup
from tests.stress.chaos.trainer import Task

RANKS = 2

_FIRST_STEPS = 5
"""Steps before the first event."""

_LAST_STEPS = 10
"""Steps after the last event, when every server runs again."""

_MIN_EPOCHS = 3


@dataclass(frozen=True)
class ServerFaults:
    """Result. `batches` counts the batches of all ranks, `equal` those as in the undisturbed run.

    `longest_wait` is in seconds, without a rank's first wait.
    """

    pipeline: str
    seed: int
    events: dict[str, int]
    seconds: float
    batches: int
    equal: int
    audit: Audit
    longest_wait: float
    waits_over_a_second: int
    hedges: int
    reconnects: int
    resets: int
    starts: int
    unclean: int

    @property
    def exact(self) -> bool:
        return self.batches == self.equal > 0 and self.audit.exact


def run_server_faults(
    served: ServedPipeline,
    folder: Path,
    seed: int,
    count: int,
    pace: float,
    launch: Launch = spawn,
    proxy: str = "none",
) -> ServerFaults:
    """Runs both jobs and compares them. Raises `HarnessError` if a server or a rank fails.

    `proxy` is one of `setup.PROXIES`.
    """
    events = draw_schedule(seed, count, pace, SERVERS, PROXIED, served.reset_bytes)
    with ExitStack() as cleanup:
        setup = cleanup.enter_context(Setup(served, folder, launch, proxy))
        setup.start()
        job = _start_job(served, folder / "disturbed", setup.target, launch, served.pause)
        cleanup.enter_context(job)
        job.wait_until(lambda: min(job.saved_steps) >= _FIRST_STEPS, "the first steps are saved")
        begin = time.monotonic()
        _apply_events(events, setup, job, begin)
        setup.start()
        stride = RANKS * served.batch_size
        min_steps = math.ceil(_MIN_EPOCHS * served.sample_count / stride)
        steps = max(min_steps, max(job.saved_steps) + _LAST_STEPS)
        job.end_after(steps)
        job.wait()
        seconds = time.monotonic() - begin
    ranks = committed_steps(job.journals)
    summaries = [journal.summary for journal in job.journals]
    undisturbed = _run_undisturbed(served, folder, steps, launch)
    all_steps = [step for rank in ranks for step in rank]
    waits = [step.wait_seconds for rank in ranks for step in rank[1:]]
    return ServerFaults(
        pipeline=served.name,
        seed=seed,
        events={kind.value: sum(event.kind is kind for event in events) for kind in FaultKind},
        seconds=seconds,
        batches=len(all_steps),
        equal=_count_equal(ranks, undisturbed, steps),
        audit=audit(all_steps, served.sample_count, complete_epochs(ranks, served.sample_count)),
        longest_wait=max(waits),
        waits_over_a_second=sum(wait > 1 for wait in waits),
        hedges=_sum(summaries, "hedges"),
        reconnects=_sum(summaries, "reconnects"),
        resets=setup.proxy.resets,
        starts=sum(server.starts for server in setup.servers),
        unclean=sum(server.unclean_exits for server in setup.servers),
    )


def _start_job(
    served: ServedPipeline, folder: Path, target: str, launch: Launch, pause: float
) -> Job:
    task = Task(
        target=target,
        pipeline=served.name,
        world_size=RANKS,
        batch_size=served.batch_size,
        pause=pause,
        prefetch_bytes=served.prefetch_bytes,
    )
    return Job(folder, task, launch)


def _apply_events(events: list[Event], setup: Setup, job: Job, begin: float) -> None:
    """Applies the events in order; a delay of one event delays all later ones.

    An event is delayed, too, until each server serves that the schedule expects to have started:
    a slow machine would leave the trainers without a server for longer than the schedule does.
    """
    delay = 0.0
    restarts: dict[int, float] = {}
    for event in events:
        due = begin + event.offset + delay
        job.wait_until(partial(_is_past, due), "the next event is due")
        for index, offset in restarts.items():
            if offset + SERVER_START_SECONDS <= event.offset:
                job.wait_until(partial(setup.has_started, index), f"server {index} has started")
        job.wait_until(partial(setup.ready_for, event), f"the event is possible: {event}")
        delay += time.monotonic() - due
        setup.apply(event)
        if event.kind is FaultKind.RESTART:
            restarts[event.server] = event.offset


def _is_past(due: float) -> bool:
    return time.monotonic() >= due


def _run_undisturbed(
    served: ServedPipeline, folder: Path, steps: int, launch: Launch
) -> list[list[Step]]:
    with (
        FaultyServer(served.definition, folder, "undisturbed", launch) as server,
        _start_job(served, folder / "undisturbed", server.address, launch, pause=0) as job,
    ):
        job.end_after(steps)
        job.wait()
        return committed_steps(job.journals)


def _count_equal(ranks: list[list[Step]], undisturbed: list[list[Step]], steps: int) -> int:
    """Counts batches equal in content and following cursor; 0 if the numbers of steps differ."""
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
