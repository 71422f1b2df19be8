"""Runner, which starts the trainers of a load test and collects their records."""

from __future__ import annotations

import contextlib
import sched
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from infeed.cursor import Shard
from infeed.rpc.channel import open_transport
from infeed.shared.spec import PipelineSpec
from infeed_tools.loadtest.plan import LoadPlan
from infeed_tools.loadtest.tally import Tally
from infeed_tools.loadtest.trainer import Point

_END_TIMEOUT_SECONDS = 3.0
"""Seconds for a trainer to end before it is killed."""

_TRAINER = """
from multiprocessing.connection import Connection
from infeed_tools.loadtest.trainer import run_process
run_process(Connection({}))
"""


class Worker:
    """The process of one simulated trainer."""

    def __init__(self, rank: int, plan: LoadPlan, options: Mapping[str, Any]) -> None:
        """Starts the process; `options` are those of `connect`."""
        self.rank = rank
        self.records, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            # In its own session, which Ctrl-C at a terminal does not reach.
            self._process = subprocess.Popen(  # noqa: S603 - a module of this package
                [sys.executable, "-c", _TRAINER.format(number)],
                pass_fds=[number],
                start_new_session=True,
            )
        self._send((plan.step_seconds, plan.steps, options))

    def stop(self) -> None:
        """Tells the trainer to end."""
        self._send(None)

    def _send(self, value: Any) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self.records.send(value)

    def end(self, timeout: float = _END_TIMEOUT_SECONDS) -> int:
        """Waits for the trainer to end, kills it after the timeout, and returns its status."""
        self.records.close()
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


Progress = Callable[[Tally], None]
"""A function that is called twice a second."""

_PROGRESS_INTERVAL_SECONDS = 0.5
"""Seconds between two calls of it."""

_STOP_TIMEOUT_SECONDS = 5.0
"""Seconds for the trainers to end before they are killed."""


def run_load(
    target: str,
    pipeline: str,
    plan: LoadPlan,
    *,
    connection: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Tally:
    """Runs a load test; `connection` holds options of `connect`, such as `tls`.

    An interrupt ends it early and marks the tally. Raises the errors of `connect` if the server or
    the pipeline is missing; the tally records the error of a single trainer.
    """
    connection = connection or {}
    channel = open_transport(target, connection.get("token"), connection.get("tls"), None)
    with contextlib.closing(channel):
        spec = channel.get_pipeline(pipeline, plan.timeout)
    tally = Tally(plan, spec)
    names = ("timeout", "batch_size", "prefetch_batches")
    options = {name: getattr(plan, name) for name in names}
    options |= {"target": target, "pipeline": pipeline, **connection}
    shards = [{**options, **shard} for shard in _shards(plan, spec)]
    _Run(plan, tally, progress or (lambda _: None)).run(shards)
    return tally


def _shards(plan: LoadPlan, spec: PipelineSpec) -> list[dict[str, Any]]:
    """Returns the options of `connect` that differ between trainers."""
    if plan.independent:
        # Jobs with the same seed would read the same batches, which a server makes only once.
        seed = spec.seed if plan.seed is None else plan.seed
        return [{"seed": seed + number} for number in range(plan.trainers)]
    job_name = f"loadtest-{uuid.uuid4().hex}" if spec.is_remote else None
    return [
        {"seed": plan.seed, "shard": Shard(rank, plan.trainers), "job_name": job_name}
        for rank in range(plan.trainers)
    ]


class _Run:
    """One run, from the start of the first trainer to the end of the last."""

    def __init__(self, plan: LoadPlan, tally: Tally, progress: Progress) -> None:
        self._plan, self._tally, self._progress = plan, tally, progress
        self._schedule = sched.scheduler(time.monotonic)
        self._running: dict[Connection, Worker] = {}
        self._stopping = False

    def run(self, options: Sequence[Mapping[str, Any]]) -> None:
        """Runs a trainer with each set of options of `connect`."""
        self._tally.began_at = time.monotonic()
        self._show_progress()
        try:
            for trainer in self._tally.trainers:
                trainer.started_at = time.monotonic()
                worker = Worker(trainer.rank, self._plan, options[trainer.rank])
                self._running[worker.records] = worker
            while self._running:
                idle_seconds = self._schedule.run(blocking=False)
                for source in wait([*self._running], idle_seconds) if self._running else ():
                    self._read(self._running[source])  # type: ignore[index]
        except KeyboardInterrupt:  # a second one acts at once
            self._tally.interrupted = True
            self._tally.ended_at = self._tally.ended_at or time.monotonic()
        finally:
            self._give_up()

    def _read(self, worker: Worker) -> None:
        """Reads one record of a trainer."""
        try:
            record = worker.records.recv()
        except (EOFError, OSError):
            record = f"its process ended with status {worker.end()}"
        if isinstance(record, Point):
            self._tally.add(worker.rank, record)
            if self._tally.all_began_at is None and self._tally.begun == self._plan.trainers:
                self._begin()
            return
        del self._running[worker.records]
        worker.end()
        self._tally.ended_at = self._tally.ended_at or time.monotonic()
        if record is not None:
            self._tally.failures.append(f"rank {worker.rank}: {record}")
            self._stop()

    def _begin(self) -> None:
        """Starts the clock of the test, once every trainer has had a batch."""
        self._tally.all_began_at = time.monotonic()
        if self._plan.steps is None:
            self._after(self._plan.duration, self._stop)

    def _stop(self) -> None:
        """Ends all trainers, and kills those that do not end in time."""
        if self._stopping:
            return
        self._stopping = True
        self._tally.ended_at = self._tally.ended_at or time.monotonic()
        for worker in self._running.values():
            worker.stop()
        self._after(_STOP_TIMEOUT_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """Kills the trainers that still run."""
        while self._running:
            self._running.popitem()[1].end(timeout=0)

    def _show_progress(self) -> None:
        self._progress(self._tally)
        self._after(_PROGRESS_INTERVAL_SECONDS, self._show_progress)

    def _after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        self._schedule.enter(seconds, 0, action, arguments)
