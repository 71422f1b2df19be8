"""A worker's work: watched, and shown by its control plane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from infeed_server.cluster.journal import JournalWatch
from infeed_server.cluster.served import Served
from infeed_server.cluster.wedged import HeardErrors, Wedge
from infeed_server.cluster.worker import WorkerRole
from infeed_server.control.health import Readiness
from infeed_server.control.role import RoleMetrics

SERVED_BYTES = "infeed_worker_served_bytes"
"""A metric's name, which those who start workers look for."""


class Work:
    """Shows nothing until it is told what to `watch`."""

    def __init__(self) -> None:
        self._wedge = Wedge()
        self._role: WorkerRole | None = None
        self._served: Served | None = None
        self._journal: JournalWatch | None = None

    @property
    def stuck(self) -> str | None:
        """Why the worker has to be started anew; None while it works."""
        return self._wedge.reason or (self._journal.reason if self._journal else None)

    def errors(self) -> HeardErrors:
        """What TensorFlow says, listened to; from before it is imported."""
        return HeardErrors(self._wedge.hear)

    @contextmanager
    def watch(self, role: WorkerRole) -> Iterator[None]:
        """Watches the role, which has started, until the end of the block."""
        self._role = role
        self._served, self._journal = Served(role.port), JournalWatch(role.dispatcher)
        self._journal.look()
        with self._served, self._journal:
            yield

    def readiness(self) -> Mapping[str, Readiness]:
        """Its dispatcher, by its address."""
        if self._role is None or self._journal is None:
            return {}
        away = self._journal.away
        now = Readiness(False, away) if away else Readiness(True, "it answers")
        return {self._role.dispatcher: now}

    def measure(self, metrics: RoleMetrics) -> None:
        """Adds what is counted of it."""
        metrics.counter(
            SERVED_BYTES,
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
        metrics.gauge(
            "infeed_worker_wedged",
            "Whether the worker has to be started anew.",
            lambda: self.stuck is not None,
        )
