"""Liveness of a dispatcher's workers, and the end of the tasks of lost ones.

TensorFlow waits without a timeout for the tasks of a worker that does not return at its address, so
a finite job would never end. infeed completes such tasks in the worker's name: the elements in
progress there are lost, and the rest of the job goes to the other workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from infeed.shared.errors import InfeedError
from infeed.v1 import cluster_pb2 as messages
from infeed_server.control.health import Readiness
from infeed_server.processes.periodic import PeriodicTask
from infeed_tfdata.rpc import DispatcherClient, WorkerCheck

log = logging.getLogger(__name__)

LOST_TIMEOUT_SECONDS = 60.0
"""Without an answer for so long, a worker is lost: longer than a restart of it takes."""

CHECK_INTERVAL_SECONDS = 5.0
"""Between probes of the workers."""

_PROBE_TIMEOUT_SECONDS = 3.0
"""For a worker to answer: more than a busy one takes."""


class WorkerLivenessMonitor(PeriodicTask):
    """Probes the workers of a dispatcher. What it has found is read from any thread."""

    def __init__(
        self,
        dispatcher: str,
        lost_timeout: float = LOST_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`dispatcher` is its address from this host, host:port; `lost_timeout` is in seconds."""
        super().__init__("lost", CHECK_INTERVAL_SECONDS, self.run_once)
        self._dispatcher = DispatcherClient(dispatcher)
        self._workers = WorkerCheck(self._dispatcher, _PROBE_TIMEOUT_SECONDS, clock)
        self._lost_timeout = lost_timeout
        self.lost: tuple[str, ...] = ()
        """Addresses of the workers that have not answered for the timeout."""
        self.ended_tasks = 0
        """Number of tasks of lost workers that were ended."""

    @property
    def reachable(self) -> Mapping[str, bool]:
        """Whether each worker answered the last check, by address."""
        tasks, silent = self._workers.tasks, self._workers.silent
        return {address: address in tasks for address in sorted([*tasks, *silent])}

    def readiness(self) -> Mapping[str, Readiness]:
        """Returns the readiness of each worker by its address."""
        found = {
            address: Readiness(True, f"has {count} tasks")
            for address, count in self._workers.tasks.items()
        }
        for address, silence in self._workers.silent.items():
            state = "lost" if address in self.lost else "does not answer"
            found[address] = Readiness(False, f"{state}: {silence.reason}")
        return dict(sorted(found.items()))

    def run_once(self) -> None:
        """Probes each worker of the dispatcher, and ends the tasks of lost ones.

        Ends no task while no worker answers, since none could continue the job.
        """
        silent = {*self._workers.silent}
        try:
            self._workers.run()
        except InfeedError as error:
            log.error("the dispatcher does not list its workers: %s", error.message)
            return
        for worker in sorted({*self._workers.silent} - silent):
            reason = self._workers.silent[worker].reason
            log.warning("worker %s does not answer: %s", worker, reason)
        before, self.lost = self.lost, self._workers.silent_for(self._lost_timeout)
        for worker in sorted({*self.lost} - {*before}):
            log.error(
                "worker %s has not answered this host at its advertised address for %.0f s: lost "
                "(%s)",
                worker,
                self._lost_timeout,
                self._workers.silent[worker].reason,
            )
        for worker in sorted({*before} & {*self._workers.tasks}):
            log.warning("worker %s is back: it receives tasks of new jobs only", worker)
        for worker in self.lost if self._workers.tasks else ():
            if not self._stopping.is_set():
                self._end_tasks(worker)

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
