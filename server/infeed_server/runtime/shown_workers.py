"""What a dispatcher's control plane shows of its workers."""

from __future__ import annotations

from collections.abc import Mapping

from infeed_server.cluster.census import VersionWatch
from infeed_server.cluster.lost import LostWorkers, Seen
from infeed_server.control.health import Readiness
from infeed_server.control.role import RoleMetrics


class ShownWorkers:
    """Shows nothing until it is told what to `watch`."""

    def __init__(self) -> None:
        self._lost: LostWorkers | None = None
        self._versions: VersionWatch | None = None

    def watch(self, lost: LostWorkers, versions: VersionWatch) -> None:
        self._lost, self._versions = lost, versions

    def readiness(self) -> Mapping[str, Readiness]:
        """Each worker, by its address."""
        others = self._versions.others if self._versions else {}
        return {
            address: _readiness(seen, others.get(f"worker {address}"))
            for address, seen in self._workers().items()
        }

    def measure(self, metrics: RoleMetrics) -> None:
        """Adds what is counted of them."""
        metrics.gauge(
            "infeed_dispatcher_workers",
            "Workers that have registered.",
            lambda: len(self._workers()),
        )
        metrics.gauges(
            "infeed_dispatcher_worker_reachable",
            "Whether a worker answers at its advertised address.",
            "worker",
            lambda: {address: seen.why is None for address, seen in self._workers().items()},
        )
        metrics.counter(
            "infeed_dispatcher_lost_tasks",
            "Tasks of lost workers that were ended.",
            lambda: self._lost.ended_tasks if self._lost else 0,
        )

    def _workers(self) -> Mapping[str, Seen]:
        return self._lost.workers if self._lost else {}


def _readiness(seen: Seen, other: str | None) -> Readiness:
    if seen.why is None and other:
        return Readiness(False, f"it runs TensorFlow {other}, which is not the dispatcher's")
    if seen.why is None:
        return Readiness(True, f"has {seen.tasks} tasks")
    return Readiness(False, f"{'lost' if seen.lost else 'does not answer'}: {seen.why}")
