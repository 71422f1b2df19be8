"""Tables of the Prometheus metrics: of a server, and of the roles of the data service."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from tools.docs.markdown import Table, cell, code

from infeed_server.data_service.control import RoleMetrics
from infeed_server.data_service.dispatcher.monitor import DispatcherStatus
from infeed_server.data_service.worker.monitor import WorkerMonitor
from infeed_server.observe.metrics import Metrics

_SUFFIXES = {"counter": "_total", "info": "_info"}


def tables() -> dict[str, Table]:
    """Returns the tables of all processes by name."""
    worker, dispatcher = (RoleMetrics(role, "version", "tf") for role in ("worker", "dispatcher"))
    WorkerMonitor().add_metrics(worker)
    DispatcherStatus().add_metrics(dispatcher)
    return {
        "metrics.server": _table(Metrics("version", "tf").registry),
        "metrics.worker": _table(worker.registry),
        "metrics.dispatcher": _table(dispatcher.registry),
    }


def _table(registry: CollectorRegistry) -> Table:
    rows = [
        (
            code(metric.name + _SUFFIXES.get(metric.type, "")),
            "gauge, always 1" if metric.type == "info" else metric.type,
            ", ".join(labels),
            cell(metric.documentation),
        )
        for metric, labels in _metrics(registry)
    ]
    return Table(("name", "type", "labels", "meaning"), rows)


def _metrics(registry: CollectorRegistry) -> Iterator[tuple[Metric, list[str]]]:
    """Yields each metric of infeed with its labels, which have no public accessor."""
    collectors: list[Collector] = list(registry._collector_to_names)
    for collector in collectors:
        for metric in collector.collect():
            if metric.name.startswith(("infeed_", "grpc_")):
                yield metric, _labels(collector, metric)


def _labels(collector: Collector, metric: Metric) -> list[str]:
    if metric.type == "info":
        return sorted(metric.samples[0].labels)
    # Of a metric's own class, or of the family that a callback fills.
    return list(getattr(collector, "_labelnames", ()) or getattr(metric, "_labelnames", ()))
