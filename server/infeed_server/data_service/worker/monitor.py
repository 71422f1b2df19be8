"""The monitor of a worker: its traffic, its dispatcher, and whether it must be restarted."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from infeed.rpc.tf_dispatcher import DISPATCHER_ROLE, DispatcherClient
from infeed.shared.errors import InfeedError
from infeed_server.control.health import Readiness
from infeed_server.data_service import process_info
from infeed_server.data_service.control import RoleMetrics
from infeed_server.data_service.worker.role import WorkerRole
from infeed_server.data_service.worker.stuck import StderrMonitor, StuckWorkerDetector
from infeed_server.data_service.worker.traffic import TrafficCounter
from infeed_server.processes.periodic import PeriodicTask

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 2.0
"""Between checks of the dispatcher's journal."""

SENT_BYTES_METRIC = "infeed_worker_served_bytes"


class DispatcherRestartDetector(PeriodicTask):
    """Detects a dispatcher that was restarted without its journal.

    Such a dispatcher numbers its tasks from the beginning. A worker takes a new task for its old
    one of the same number, and serves the wrong data, so it must be restarted too. The journal of a
    dispatcher that infeed did not start has no id: only its availability is known.
    """

    def __init__(self, dispatcher: str) -> None:
        super().__init__("journal", CHECK_INTERVAL_SECONDS, self.run_once)
        self._dispatcher = DispatcherClient(dispatcher)
        self._journal = ""
        self.error: str | None = None
        """Why the dispatcher does not answer; None when it does."""
        self.reason: str | None = None
        """Why the worker must be restarted; once set, it stays."""

    def run_once(self) -> None:
        """Checks the dispatcher."""
        try:
            info = process_info.fetch(self._dispatcher, DISPATCHER_ROLE)
        except InfeedError as error:
            if self.error is None:
                log.warning("the dispatcher does not answer: %s", error.message)
            self.error = error.message
            return
        if self.error is not None:
            log.info("the dispatcher at %s answers again", self._dispatcher.address)
        self.error = None
        journal = info.journal if info else ""
        if self._journal and journal and journal != self._journal:
            self.reason = (
                f"the dispatcher at {self._dispatcher.address} began a new journal ({journal}, "
                f"before {self._journal}), which does not have this worker's tasks"
            )
        self._journal = self._journal or journal


class WorkerMonitor:
    """The state of a worker for its control plane; empty before `watch`."""

    def __init__(self) -> None:
        self._stuck = StuckWorkerDetector()
        self._role: WorkerRole | None = None
        self._traffic: TrafficCounter | None = None
        self._dispatcher: DispatcherRestartDetector | None = None

    @property
    def restart_reason(self) -> str | None:
        """Why the worker must be restarted; None while it works."""
        return self._stuck.reason or (self._dispatcher.reason if self._dispatcher else None)

    def stderr_monitor(self) -> StderrMonitor:
        """Returns a monitor of standard error, to be entered before TensorFlow is imported."""
        return StderrMonitor(self._stuck.process_line)

    @contextmanager
    def watch(self, role: WorkerRole) -> Iterator[None]:
        """Watches a started role until the end of the block."""
        self._role = role
        self._traffic = TrafficCounter(role.port)
        self._dispatcher = DispatcherRestartDetector(role.dispatcher)
        self._dispatcher.run_once()
        with self._traffic, self._dispatcher:
            yield

    def readiness(self) -> Mapping[str, Readiness]:
        """Returns the readiness of the dispatcher by its address."""
        if self._role is None or self._dispatcher is None:
            return {}
        error = self._dispatcher.error
        readiness = Readiness(False, error) if error else Readiness(True, "it answers")
        return {self._role.dispatcher: readiness}

    def add_metrics(self, metrics: RoleMetrics) -> None:
        """Adds the metrics of the worker."""
        metrics.add_counter(
            SENT_BYTES_METRIC,
            "Bytes that the worker sent, as the kernel counts.",
            lambda: self._traffic.sent_bytes if self._traffic else 0,
        )
        metrics.add_gauge(
            "infeed_worker_connections",
            "Open connections to the worker.",
            lambda: self._traffic.connections if self._traffic else 0,
        )
        metrics.add_gauge(
            "infeed_worker_idle_seconds",
            "Seconds since the worker sent more than answers to probes.",
            lambda: self._traffic.idle_seconds if self._traffic else 0,
        )
        metrics.add_gauge(
            "infeed_worker_tasks",
            "Tasks that the worker has.",
            lambda: self._role.tasks if self._role else 0,
        )
        metrics.add_gauge(
            "infeed_worker_wedged",
            "1 if the worker must be restarted; it is about to exit.",
            lambda: self.restart_reason is not None,
        )
