"""Runner: starts the trainers of a load test, kills and stalls them, and collects their records."""

from __future__ import annotations

import contextlib
import sched
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from infeed.cursor import Shard
from infeed.loadtest.plan import LoadPlan
from infeed.loadtest.records import Point
from infeed.loadtest.tally import Tally
from infeed.loadtest.trainer import TrainerOptions
from infeed.loadtest.workers import Worker, route
from infeed.rpc.channel import open_transport
from infeed.shared.spec import PipelineSpec

Progress = Callable[[Tally], None]
"""Called twice a second."""

_PROGRESS_INTERVAL_SECONDS = 0.5
"""Seconds between two calls; also the longest time until Ctrl-C takes effect."""

_STOP_TIMEOUT_SECONDS = 5.0
"""Seconds for the trainers to end before they are killed."""


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
        run = _Run(plan, tally, workers, progress or (lambda _: None))
        with _interrupts(tally):
            run.run()
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


@contextlib.contextmanager
def _interrupts(tally: Tally) -> Iterator[None]:
    """Marks the tally at Ctrl-C, so that no record is lost half-way; a second one acts at once.

    Does nothing in a thread, which gets no signals, or where a handler is set already.
    """
    default = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not default:
        yield
        return

    def mark(*_: object) -> None:
        tally.interrupted = True
        signal.signal(signal.SIGINT, default)

    signal.signal(signal.SIGINT, mark)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, default)


class _Run:
    """One run, from the first start to the last end."""

    def __init__(
        self, plan: LoadPlan, tally: Tally, workers: list[Worker], progress: Progress
    ) -> None:
        self._plan, self._tally, self._workers = plan, tally, workers
        self._progress = progress
        self._schedule = sched.scheduler(time.monotonic)
        self._done: set[int] = set()
        self._stopping = False

    def run(self) -> None:
        self._tally.began_at = now = time.monotonic()
        for rank in range(self._plan.trainers):
            self._at(now + rank * self._plan.ramp_seconds, partial(self._start, rank))
        self._at(now, self._show_progress)
        try:
            while len(self._done) < len(self._workers):
                self._collect()
        finally:
            for worker in self._workers:
                if worker.runs and worker.rank not in self._done:
                    worker.kill()
                worker.end()

    def _collect(self) -> None:
        """Does what is due, and reads the records that come until something else is."""
        idle_seconds = self._schedule.run(blocking=False)
        if self._tally.interrupted:
            self._stop()
        if len(self._done) == len(self._workers):
            return
        sources = {worker.records: worker for worker in self._workers if worker.records is not None}
        for source in wait(list(sources), idle_seconds):
            self._read(sources[source])  # type: ignore[index]

    def _read(self, worker: Worker) -> None:
        """Reads one record of a trainer."""
        assert worker.records is not None
        rank = worker.rank
        try:
            record = worker.records.recv()
        except (EOFError, OSError):
            record = f"its process ended with status {worker.end()}"
        if isinstance(record, Point):
            self._tally.add(rank, record)
            if self._tally.all_began_at is None and self._tally.have_all_begun:
                self._begin()
            return
        worker.end()
        self._done.add(rank)
        self._tally.ended_at = self._tally.ended_at or time.monotonic()
        if record is not None:
            self._tally.failures.append(f"rank {rank}: {record}")
            self._stop()

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
        if worker.records is None or self._stopping:
            return
        self._note(f"rank {rank} is killed")
        worker.kill()
        with contextlib.suppress(EOFError, OSError):
            while worker.records.poll():
                record = worker.records.recv()
                if isinstance(record, Point):
                    self._tally.add(rank, record)
        worker.end()
        self._tally.start(rank, time.monotonic())
        resumable = self._tally.spec.guarantee.resume != "none"
        worker.start(trainer.state if resumable else None)

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
        self._schedule.enterabs(due, 0, action)
