"""Server faults: two ranks train on three servers with faults, then on one without.

Every batch of the first run must equal the second's.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.harness.server import Launch, spawn
from tests.stress.chaos.job import Job, audit
from tests.stress.chaos.pipelines import ServedPipeline
from tests.stress.chaos.schedule import Event
from tests.stress.chaos.servers import FaultyServer, FaultyServers
from tests.stress.chaos.trainer import Step, Task

RANKS = 2

_FIRST_STEPS = 5
"""Steps before the first event."""

_LAST_STEPS = 10
"""Steps after the last event, when every server runs again."""

_MIN_EPOCHS = 3


def run_server_faults(
    served: ServedPipeline, folder: Path, events: Sequence[Event], launch: Launch = spawn
) -> dict[str, Any]:
    """Runs both jobs and compares them; returns the report. Raises `HarnessError` if a server or a
    rank fails."""

    def start(name: str, target: str, pause: float) -> Job:
        size = served.batch_size
        task = Task(target, served.name, RANKS, size, prefetch_bytes=served.prefetch_bytes)
        return Job(folder / name, replace(task, pause=pause), launch)

    with (
        FaultyServers(served.definition, folder, launch) as servers,
        start("disturbed", servers.target, served.pause) as job,
    ):
        job.wait_until(lambda: min(job.saved_steps) >= _FIRST_STEPS, "the first steps are saved")
        begin = time.monotonic()
        for event in events:
            _apply(event, servers, job)
        servers.start()
        min_steps = math.ceil(_MIN_EPOCHS * served.sample_count / (RANKS * served.batch_size))
        steps = max(min_steps, max(job.saved_steps) + _LAST_STEPS)
        job.end_after(steps)
        ranks, stats = job.wait(), job.stats()
        seconds = time.monotonic() - begin
    with (
        FaultyServer(served.definition, folder, "undisturbed", launch) as server,
        start("undisturbed", server.address, 0) as job,
    ):
        job.end_after(steps)
        undisturbed = job.wait()
    assert {len(rank) for rank in (*ranks, *undisturbed)} == {steps}
    delivered = [step for rank in ranks for step in rank]
    expected = [step for rank in undisturbed for step in rank]
    waits = [step.wait_seconds for rank in ranks for step in rank[1:]]
    complete_epochs = max(step.start + len(step.mask) for step in delivered) // served.sample_count
    counted = audit(delivered, served.sample_count, complete_epochs)
    equal = sum(map(_are_equal, delivered, expected))
    return {
        "exact": len(delivered) == equal > 0 and counted.exact,
        "pipeline": served.name,
        "events": dict(Counter(event.kind for event in events)),
        "seconds": seconds,
        "batches": len(delivered),
        "equal": equal,
        "audit": asdict(counted),
        "longest_wait": max(waits),
        "waits_over_a_second": sum(wait > 1 for wait in waits),
        "hedges": sum(rank["hedges"] for rank in stats),
        "reconnects": sum(rank["reconnects"] for rank in stats),
        "resets": servers.proxy.resets,
        "starts": sum(server.starts for server in servers.servers),
        "unclean": sum(server.unclean_exits for server in servers.servers),
    }


def _apply(event: Event, servers: FaultyServers, job: Job) -> None:
    due = time.monotonic() + event.pause
    job.wait_until(
        lambda: time.monotonic() >= due and servers.ready_for(event),
        f"server {event.server} is ready for {event.kind}",
    )
    servers.apply(event)


def _are_equal(one: Step, other: Step) -> bool:
    return (one.start, one.digest, one.cursor) == (other.start, other.digest, other.cursor)
