"""Liveness of a dispatcher's workers, and the end of the tasks of lost ones.

TensorFlow waits without a timeout for the tasks of a worker that does not return at its address, so
a finite job would never end. infeed completes such tasks in the worker's name: the elements in
progress there are lost, and the rest of the job goes to the other workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infeed.shared.errors import InfeedError
from infeed.v1 import cluster_pb2 as messages
from infeed_server.control.health import Readiness
from infeed_server.processes.periodic import PeriodicTask
from infeed_tfdata.rpc import DispatcherClient, probe_workers

log = logging.getLogger(__name__)

LOST_TIMEOUT_SECONDS = 60.0
"""Without an answer for so long, a worker is lost: longer than a restart of it takes."""

CHECK_INTERVAL_SECONDS = 5.0
"""Between probes of the workers."""

_PROBE_TIMEOUT_SECONDS = 3.0
"""For a worker to answer: more than a busy one takes."""


@dataclass
class WorkerState:
    """The state of a worker as of the last check."""

    last_answer: float
    """The time of its last answer, or of its first check."""
    tasks: int = 0
    error: str | None = None
    """Why it does not answer; None when it does."""
    lost: bool = False


class WorkerLivenessMonitor(PeriodicTask):
    """Probes the workers of a dispatcher. `workers` and `ended_tasks` are thread-safe."""

    def __init__(
        self,
        dispatcher: str,
        lost_timeout: float = LOST_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`dispatcher` is its address from this host, host:port; `lost_timeout` is in seconds."""
        super().__init__("lost", CHECK_INTERVAL_SECONDS, self.run_once)
        self._dispatcher = DispatcherClient(dispatcher)
        self._lost_timeout = lost_timeout
        self._clock = clock
        self._states: dict[str, WorkerState] = {}
        self._dispatcher_failed = False
        self.ended_tasks = 0
        """Number of tasks of lost workers that were ended."""

    @property
    def workers(self) -> dict[str, WorkerState]:
        """The states of all workers by address; a copy."""
        return dict(sorted(self._states.items()))

    def readiness(self) -> Mapping[str, Readiness]:
        """Returns the readiness of each worker by its address."""
        return {
            address: Readiness(
                False, f"{'lost' if state.lost else 'does not answer'}: {state.error}"
            )
            if state.error is not None
            else Readiness(True, f"has {state.tasks} tasks")
            for address, state in self.workers.items()
        }

    def run_once(self) -> None:
        """Probes each worker of the dispatcher, and ends the tasks of lost ones.

        Ends no task while no worker answers, since none could continue the job.
        """
        try:
            workers = self._dispatcher.get_workers()
        except InfeedError as error:
            if not self._dispatcher_failed:
                log.error("the dispatcher does not list its workers: %s", error.message)
            self._dispatcher_failed = True
            return
        self._dispatcher_failed = False
        for worker, result in probe_workers(workers, _PROBE_TIMEOUT_SECONDS).items():
            self._update(worker, result)
        if all(state.error is not None for state in self._states.values()):
            return
        for worker, state in self.workers.items():
            if state.lost and not self._stopping.is_set():
                self._end_tasks(worker)

    def _update(self, worker: str, result: int | str) -> None:
        now = self._clock()
        before = self._states.get(worker) or WorkerState(now)
        if isinstance(result, int):
            if before.lost:
                log.warning("worker %s is back: it receives tasks of new jobs only", worker)
            self._states[worker] = WorkerState(now, result)
            return
        silent_seconds = now - before.last_answer
        lost = before.lost or silent_seconds >= self._lost_timeout
        if lost and not before.lost:
            log.error(
                "worker %s has not answered this host at its advertised address for %.0f s: lost "
                "(%s)",
                worker,
                silent_seconds,
                result,
            )
        elif before.error is None:
            log.warning("worker %s does not answer: %s", worker, result)
        self._states[worker] = WorkerState(before.last_answer, before.tasks, result, lost)

    def _end_tasks(self, worker: str) -> None:
        """Reports in the worker's name that all of its tasks are completed.

        A heartbeat without tasks, as from a restarted worker, returns the tasks assigned to it.
        """
        try:
            assigned = self._dispatcher.call(
                "WorkerHeartbeat",
                messages.WorkerHeartbeat(worker_address=worker),
                messages.WorkerHeartbeatAnswer,
            )
            task_ids = [int(task.task_id) for task in assigned.new_tasks]
            if not task_ids:
                return
            updates = [messages.TaskProgress(task_id=task, completed=True) for task in task_ids]
            self._dispatcher.call(
                "WorkerUpdate",
                messages.WorkerUpdate(worker_address=worker, updates=updates),
                messages.Nothing,
            )
        except InfeedError as error:
            log.error("the tasks of worker %s cannot be ended: %s", worker, error.message)
            return
        self.ended_tasks += len(task_ids)
        log.error(
            "%d tasks of worker %s are ended: its in-progress elements are lost, the rest of their "
            "jobs goes to the other workers",
            len(task_ids),
            worker,
        )
