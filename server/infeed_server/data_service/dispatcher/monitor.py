"""Liveness of a dispatcher's workers, and the end of the tasks of lost ones.

TensorFlow waits without a timeout for the tasks of a worker that does not return at its address, so
a finite job would never end. infeed completes such tasks in the worker's name: the elements in
progress there are lost, and the rest of the job goes to the other workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from infeed.rpc.tf_dispatcher import DispatcherClient, get_worker_tasks
from infeed.shared.errors import InfeedError
from infeed.v1 import cluster_pb2 as messages
from infeed_server.control.health import Readiness
from infeed_server.data_service.control import RoleMetrics
from infeed_server.data_service.dispatcher.work_dir import WorkDirMonitor
from infeed_server.data_service.process_info import VersionMonitor
from infeed_server.processes.periodic import PeriodicTask

log = logging.getLogger(__name__)

LOST_TIMEOUT_SECONDS = 60.0
"""Without an answer for so long, a worker is lost: longer than a restart of it takes."""

CHECK_INTERVAL_SECONDS = 5.0

_PROBE_TIMEOUT_SECONDS = 3.0

_MAX_CONCURRENT_PROBES = 16
"""Several at once, since a worker that hangs must not delay the probes of the others."""


@dataclass
class WorkerState:
    """The state of a worker as of the last check."""

    last_answer: float
    """The time of its last answer, or of its first check."""
    has_answered: bool = False
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
        if not workers:
            return
        with ThreadPoolExecutor(_MAX_CONCURRENT_PROBES, "infeed-lost") as pool:
            results = list(pool.map(_probe, workers))
        for worker, result in zip(workers, results, strict=True):
            self._update(worker, result)
        if all(state.error is not None for state in self._states.values()):
            return
        for worker, state in self.workers.items():
            if state.lost and not self._stopping.is_set():
                self._end_tasks(worker)

    def _update(self, worker: str, result: int | str) -> None:
        now = self._clock()
        state = self._states.setdefault(worker, WorkerState(last_answer=now))
        if isinstance(result, int):
            if state.lost:
                log.warning("worker %s is back: it receives tasks of new jobs only", worker)
            elif not state.has_answered:
                log.info("worker %s answers", worker)
            self._states[worker] = WorkerState(now, has_answered=True, tasks=result)
            return
        silent_seconds = now - state.last_answer
        lost = state.lost or silent_seconds >= self._lost_timeout
        if lost and not state.lost:
            if state.has_answered:
                log.error(
                    "worker %s has not answered for %.0f s: lost (%s)",
                    worker,
                    silent_seconds,
                    result,
                )
            else:
                log.error(
                    "worker %s registered, but does not answer this host at its advertised "
                    "address: %s",
                    worker,
                    result,
                )
        elif state.error is None:
            log.warning("worker %s does not answer: %s", worker, result)
        self._states[worker] = WorkerState(
            state.last_answer, state.has_answered, state.tasks, result, lost
        )

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
            updates = [messages.TaskProgress(task_id=each, completed=True) for each in task_ids]
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


class DispatcherStatus:
    """A dispatcher's workers and work directory, for its control plane; empty before `watch`."""

    def __init__(self) -> None:
        self._liveness: WorkerLivenessMonitor | None = None
        self._versions: VersionMonitor | None = None
        self._work_dir: WorkDirMonitor | None = None

    def watch(
        self, liveness: WorkerLivenessMonitor, versions: VersionMonitor, work_dir: WorkDirMonitor
    ) -> None:
        """Sets the monitors to read from."""
        self._liveness, self._versions, self._work_dir = liveness, versions, work_dir

    def readiness(self) -> Mapping[str, Readiness]:
        """Returns the readiness of each worker by its address."""
        mismatches = self._versions.mismatches if self._versions else {}
        return {
            address: _readiness(state, mismatches.get(f"worker {address}"))
            for address, state in self._workers().items()
        }

    def add_metrics(self, metrics: RoleMetrics) -> None:
        """Adds the metrics of the workers."""
        metrics.add_gauge(
            "infeed_dispatcher_workers",
            "Workers that have registered, including lost ones.",
            lambda: len(self._workers()),
        )
        metrics.add_labelled_gauge(
            "infeed_dispatcher_worker_reachable",
            "1 if the worker answers at its advertised address.",
            "worker",
            lambda: {address: state.error is None for address, state in self._workers().items()},
        )
        metrics.add_counter(
            "infeed_dispatcher_lost_tasks",
            "Tasks of lost workers that were ended.",
            lambda: self._liveness.ended_tasks if self._liveness else 0,
        )
        metrics.add_gauge(
            "infeed_dispatcher_work_dir_bytes",
            "Bytes of the journal and of the graphs of registered data sets.",
            lambda: self._work_dir.used_bytes if self._work_dir else 0,
        )
        metrics.add_gauge(
            "infeed_dispatcher_work_dir_free_bytes",
            "Free bytes of the file system with the work directory.",
            lambda: self._work_dir.free_bytes if self._work_dir else 0,
        )

    def _workers(self) -> Mapping[str, WorkerState]:
        return self._liveness.workers if self._liveness else {}


def _probe(worker: str) -> int | str:
    """Returns the number of the worker's tasks, or why it does not answer."""
    try:
        return len(get_worker_tasks(worker, _PROBE_TIMEOUT_SECONDS))
    except InfeedError as error:
        return error.message


def _readiness(state: WorkerState, mismatch: str | None) -> Readiness:
    if state.error is not None:
        return Readiness(False, f"{'lost' if state.lost else 'does not answer'}: {state.error}")
    if mismatch:
        return Readiness(False, f"runs TensorFlow {mismatch}, not the dispatcher's version")
    return Readiness(True, f"has {state.tasks} tasks")
