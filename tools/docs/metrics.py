"""Tables of the Prometheus metrics: of a server, and of the roles of the data service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from tools.docs.markdown import Table, cell, code

from infeed_observe.metrics import Metrics
from infeed_observe.observer import Observer
from infeed_observe.server_metrics import expose_server
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.runtime.instruments import Facts
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.health import Health
from infeed_server.serving.refused import RefusedBatches
from infeed_service.gateway.service import add_metrics
from infeed_service.roles.run import (
    add_dispatcher_metrics,
    add_worker_metrics,
    role_metrics,
)

_COLUMNS = ("name", "type", "labels", "meaning")
_SUFFIXES = {"counter": "_total", "info": "_info"}


def tables() -> dict[str, Table]:
    """Returns the tables of all processes by name."""
    idle: Any = SimpleNamespace(readiness=dict, ended_tasks=0, tasks=0, restart_reason=None)
    worker, dispatcher, gateway = role_metrics("worker"), role_metrics("dispatcher"), Metrics(())
    add_worker_metrics(worker, idle, idle)
    add_dispatcher_metrics(dispatcher, idle, Path("none"))
    add_metrics(gateway, dict, dict)
    roles = {"dispatcher": dispatcher, "worker": worker, "gateway": gateway}
    server = Metrics(version="", tensorflow="")
    facts = Facts(ServerOptions(), Health(), {}, MemoryBudget(1), RefusedBatches())
    expose_server(Observer(facts, server))
    return {
        "metrics.server": Table(_COLUMNS, list(_rows(server.registry))),
        "metrics.roles": Table(
            ("role", *_COLUMNS),
            [
                (role, *row)
                for role, metrics in roles.items()
                for row in _rows(metrics.registry)
                if "infeed_build" not in row[0]
            ],
        ),
    }


def _rows(registry: CollectorRegistry) -> Iterator[tuple[str, ...]]:
    for metric, labels in _metrics(registry):
        yield (
            code(metric.name + _SUFFIXES.get(metric.type, "")),
            "gauge, always 1" if metric.type == "info" else metric.type,
            ", ".join(labels),
            cell(metric.documentation),
        )


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
