"""Liveness of a dispatcher's workers, and the end of the tasks of lost ones.

TensorFlow waits without a timeout for the tasks of a worker that does not return at its address, so
a finite job would never end. infeed reports such tasks as completed in the worker's name. The
elements in progress there are lost; the other workers do the rest of the job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from infeed.shared.errors import InfeedError
from infeed.v1 import cluster_pb2 as messages
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.serving.health import Readiness
from infeed_service.rpc import DispatcherClient, WorkerCheck

log = logging.getLogger(__name__)

LOST_TIMEOUT_SECONDS = 60.0
"""Silence after which a worker is lost: longer than its restart takes."""

CHECK_INTERVAL_SECONDS = 5.0
"""Period of the probes of workers."""

_PROBE_TIMEOUT_SECONDS = 3.0
"""Wait for a worker's answer: longer than a busy worker's delay."""


class WorkerLivenessMonitor(PeriodicTask):
    """Probes the workers of a dispatcher. Any thread may read its findings."""

    def __init__(
        self,
        dispatcher: str,
        lost_timeout: float = LOST_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        on_lost: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """`dispatcher` is the dispatcher's address for this host, host:port; `lost_timeout` is in
        seconds. `on_lost` is called with newly lost workers."""
        super().__init__("lost", CHECK_INTERVAL_SECONDS, self.run_once)
        self._dispatcher = DispatcherClient(dispatcher)
        self._workers = WorkerCheck(self._dispatcher, _PROBE_TIMEOUT_SECONDS, clock)
        self._lost_timeout = lost_timeout
        self._on_lost = on_lost
        self.lost: tuple[str, ...] = ()
        """Addresses of the workers silent for at least the timeout."""
        self.ended_tasks = 0
        """Number of tasks of lost workers that were ended."""

    def readiness(self) -> Mapping[str, Readiness]:
        """Returns, by address, whether each worker answered."""
        tasks = self._workers.tasks.items()
        found = {address: Readiness(True, f"has {count} tasks") for address, count in tasks}
        for address, silence in self._workers.silent.items():
            state = "lost" if address in self.lost else "does not answer"
            found[address] = Readiness(False, f"{state}: {silence.reason}")
        return dict(sorted(found.items()))

    def run_once(self) -> None:
        """Probes each worker of the dispatcher and ends the tasks of lost ones.

        While no worker answers, it ends no task, since none could continue the job.
        """
        try:
            self._workers.run()
        except InfeedError as error:
            log.error("cannot list the dispatcher's workers: %s", error.message)
            return
        before, self.lost = self.lost, self._workers.silent_for(self._lost_timeout)
        newly_lost = sorted({*self.lost} - {*before})
        for worker in newly_lost:
            reason = self._workers.silent[worker].reason
            log.error(
                "worker %s is lost: no answer for %.0f s (%s)", worker, self._lost_timeout, reason
            )
        self._on_lost(newly_lost)
        for worker in sorted({*before} & {*self._workers.tasks}):
            log.warning("worker %s is back; it receives only tasks of new jobs", worker)
        for worker in self.lost if self._workers.tasks else ():
            if not self._stopping.is_set():
                self._end_tasks(worker)

    def _end_tasks(self, worker: str) -> None:
        """Reports in the worker's name that all its tasks are completed.

        A heartbeat without tasks, like a restarted worker's, returns the tasks assigned to it.
        """
        call = self._dispatcher.call
        try:
            heartbeat = messages.WorkerHeartbeat(worker_address=worker)
            assigned = call("WorkerHeartbeat", heartbeat, messages.WorkerHeartbeatAnswer)
            task_ids = [int(task.task_id) for task in assigned.new_tasks]
            if not task_ids:
                return
            updates = [messages.TaskProgress(task_id=task, completed=True) for task in task_ids]
            update = messages.WorkerUpdate(worker_address=worker, updates=updates)
            call("WorkerUpdate", update, messages.Nothing)
        except InfeedError as error:
            log.error("cannot end the tasks of worker %s: %s", worker, error.message)
            return
        self.ended_tasks += len(task_ids)
        text = "ended %d tasks of worker %s; its elements in progress are lost"
        log.error(text, len(task_ids), worker)
