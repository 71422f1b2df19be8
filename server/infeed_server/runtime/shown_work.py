"""What a worker's control plane shows of its work."""

from __future__ import annotations

from infeed_server.cluster.served import Served
from infeed_server.cluster.worker import WorkerRole
from infeed_server.control.role import RoleMetrics


class ShownWork:
    """Shows nothing until it is told what to `watch`."""

    def __init__(self) -> None:
        self._role: WorkerRole | None = None
        self._served: Served | None = None

    def watch(self, role: WorkerRole) -> Served:
        """What has to run for it."""
        self._role, self._served = role, Served(role.port)
        return self._served

    def measure(self, metrics: RoleMetrics) -> None:
        """Adds what is counted of it."""
        metrics.counter(
            "infeed_worker_served_bytes",
            "Bytes that the worker sent, as the kernel counts.",
            lambda: self._served.bytes if self._served else 0,
        )
        metrics.gauge(
            "infeed_worker_connections",
            "Connections to the worker that are open.",
            lambda: self._served.connections if self._served else 0,
        )
        metrics.gauge(
            "infeed_worker_idle_seconds",
            "Seconds since the worker sent more than answers to questions.",
            lambda: self._served.idle_seconds if self._served else 0,
        )
        metrics.gauge(
            "infeed_worker_tasks",
            "Tasks that the worker has.",
            lambda: self._role.tasks if self._role else 0,
        )
