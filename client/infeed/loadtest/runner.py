"""Runner: starts the trainers of a load test, kills and stalls them, and collects their records."""

from __future__ import annotations

import heapq
import itertools
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from infeed.cursor import Shard
from infeed.loadtest.interrupt import HeldInterrupt
from infeed.loadtest.plan import LoadPlan
from infeed.loadtest.records import Failure, Point
from infeed.loadtest.tally import Tally
from infeed.loadtest.trainer import TrainerOptions
from infeed.loadtest.workers import Worker, route
from infeed.rpc.channel import open_transport
from infeed.shared.spec import PipelineSpec

Progress = Callable[[Tally], None]
"""Called twice a second."""

_PROGRESS_INTERVAL_SECONDS = 0.5
_STOP_TIMEOUT_SECONDS = 5.0
"""Time for the trainers to end before they are killed."""


def run_load(
    target: str,
    pipeline: str,
    plan: LoadPlan,
    *,
    connection: Mapping[str, Any] | None = None,
    timeout: float = 20.0,
    progress: Progress | None = None,
) -> Tally:
    """Runs a load test; `connection` has options of `connect`, such as `tls`.

    An interrupt ends it early, and marks the tally. Raises the errors of `connect` for a server or
    a pipeline that is not there; the error of a single trainer is in the tally.
    """
    options = dict(connection or {})
    spec = _get_pipeline(target, pipeline, options, timeout)
    spec.check_batch_size(plan.batch_size or spec.batch_size)
    with route(target, options, plan.rtt_seconds, plan.jitter_seconds) as path:
        tally = Tally(plan, spec, path.addresses)
        options = {**path.connection, "timeout": timeout, "batch_size": plan.batch_size}
        options["prefetch_batches"] = plan.prefetch_batches
        workers = [
            Worker(
                rank,
                TrainerOptions(
                    path.target, pipeline, plan.step_seconds, plan.steps, {**options, **shard}
                ),
                threads=plan.threads,
            )
            for rank, shard in enumerate(_shards(plan, spec))
        ]
        _Run(plan, tally, workers, progress or (lambda _: None)).run()
    return tally


def _get_pipeline(
    target: str, pipeline: str, options: Mapping[str, Any], timeout: float
) -> PipelineSpec:
    fake = options.get("transport")
    channel = open_transport(target, options.get("token"), options.get("tls"), fake)
    try:
        return channel.get_pipeline(pipeline, timeout)
    finally:
        if fake is None:
            channel.close()


def _shards(plan: LoadPlan, spec: PipelineSpec) -> list[dict[str, Any]]:
    """Returns the options of `connect` that differ between trainers."""
    seed = spec.seed if plan.seed is None else plan.seed
    if plan.independent:
        # Jobs with one seed would read the same batches, which a server makes once.
        return [{"seed": seed + number} for number in range(plan.trainers)]
    job_name = f"loadtest-{uuid.uuid4().hex}" if spec.is_remote else None
    return [
        {"seed": plan.seed, "shard": Shard(rank, plan.trainers), "job_name": job_name}
        for rank in range(plan.trainers)
    ]


class _Run:
    """One run, from the first start to the last end."""

    def __init__(
        self, plan: LoadPlan, tally: Tally, workers: list[Worker], progress: Progress
    ) -> None:
        self._plan, self._tally, self._workers = plan, tally, workers
        self._progress = progress
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._done: set[int] = set()
        self._stopping = False

    def run(self) -> None:
        self._tally.began_at = now = time.monotonic()
        for rank in range(self._plan.trainers):
            self._at(now + rank * self._plan.ramp_seconds, partial(self._start, rank))
        self._at(now, self._show_progress)
        interrupt = HeldInterrupt()
        try:
            with interrupt:
                self._collect(interrupt)
        except KeyboardInterrupt:
            self._tally.interrupted = True
            self._stop()
            self._collect(HeldInterrupt())  # a second interrupt ends it without a report
        finally:
            for worker in self._workers:
                if worker.runs and worker.rank not in self._done:
                    worker.kill()
                worker.end()

    def _collect(self, interrupt: HeldInterrupt) -> None:
        """Reads records and does what is due, until all trainers have ended."""
        while len(self._done) < len(self._workers):
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()
            if len(self._done) == len(self._workers):
                return
            timeout = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            sources = {each.records: each for each in self._workers if each.records is not None}
            for source in interrupt.wait(sources, timeout):
                self._read(sources[source])

    def _read(self, worker: Worker) -> None:
        """Reads one record of a trainer."""
        assert worker.records is not None
        rank, trainer = worker.rank, self._tally.trainers[worker.rank]
        try:
            record = worker.records.recv()
        except (EOFError, OSError):
            status = worker.end()
            self._fail(rank, f"its process ended with status {status}")
            return
        if isinstance(record, Point):
            self._tally.add(rank, record)
            if self._tally.all_began_at is None and self._tally.have_all_begun:
                self._begin()
            return
        if isinstance(record, Failure):
            self._fail(rank, record.error)
        else:
            trainer.ended_at = time.monotonic()
            self._end_of(rank)
        worker.end()

    def _begin(self) -> None:
        """Sets the clock of the test: every trainer has had a batch."""
        self._tally.all_began_at = now = time.monotonic()
        for stall in self._plan.stalls:
            self._at(now + stall.at, partial(self._stall, stall.rank, stall.seconds))
        for kill in self._plan.kills:
            self._at(now + kill.at, partial(self._kill, kill.rank))
        if self._plan.steps is None:
            self._at(now + self._plan.duration_seconds, self._stop)

    def _start(self, rank: int) -> None:
        if not self._stopping:
            self._tally.start(rank, time.monotonic())
            self._workers[rank].start()

    def _stall(self, rank: int, seconds: float) -> None:
        if self._workers[rank].runs and not self._stopping:
            self._note(f"rank {rank} stalls for {seconds:g} s")
            self._workers[rank].order("stall", seconds)

    def _kill(self, rank: int) -> None:
        """Kills a trainer, reads what it had sent, and starts it at its last cursor."""
        worker, trainer = self._workers[rank], self._tally.trainers[rank]
        if not worker.runs or self._stopping:
            return
        self._note(f"rank {rank} is killed")
        worker.kill()
        while worker.runs and worker.records is not None and worker.records.poll():
            try:
                record = worker.records.recv()
            except (EOFError, OSError):
                break
            if isinstance(record, Point):
                self._tally.add(rank, record)
        worker.end()
        self._tally.start(rank, time.monotonic())
        resumable = self._tally.spec.guarantee.resume != "none"
        worker.start(trainer.state if resumable else None)

    def _fail(self, rank: int, problem: str) -> None:
        self._tally.failures.append(f"rank {rank}: {problem}")
        self._end_of(rank)
        self._stop()

    def _end_of(self, rank: int) -> None:
        self._done.add(rank)
        self._tally.ended_at = self._tally.ended_at or time.monotonic()

    def _stop(self) -> None:
        """Ends all trainers; those that do not end in time are killed."""
        if self._stopping:
            return
        self._stopping = True
        self._tally.ended_at = self._tally.ended_at or time.monotonic()
        for worker in self._workers:
            if worker.runs:
                worker.order("stop")
            else:
                self._done.add(worker.rank)
        self._at(time.monotonic() + _STOP_TIMEOUT_SECONDS, self._give_up)

    def _give_up(self) -> None:
        for worker in self._workers:
            if worker.runs:
                worker.kill()
                worker.end()
                self._done.add(worker.rank)

    def _note(self, text: str) -> None:
        self._tally.events.append((time.monotonic(), text))

    def _show_progress(self) -> None:
        self._progress(self._tally)
        self._at(time.monotonic() + _PROGRESS_INTERVAL_SECONDS, self._show_progress)

    def _at(self, due: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (due, next(self._order), action))
