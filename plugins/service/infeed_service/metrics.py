"""Metrics whose values are read at every scrape: of a gateway, a dispatcher and a worker."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from infeed_server.observe.callback_metrics import CallbackCollector, LabelledValues
from infeed_server.version import VERSION


def new_registry(role: str) -> CollectorRegistry:
    """Returns a registry with the metrics of any role."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("infeed_build", "The versions of this process.", registry=registry).info(
        {"role": role, "version": VERSION, "tensorflow": version("tensorflow")}
    )
    return registry


def expose(
    registry: CollectorRegistry,
    name: str,
    text: str,
    values: Callable[[], float | LabelledValues],
    label: str = "",
) -> None:
    """Adds a metric, a counter if its name ends with `_total`; `values` must be quick."""
    family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily

    def labelled() -> LabelledValues:
        found = values()
        return {(): found} if isinstance(found, (int, float)) else found

    labels = (label,) if label else ()
    registry.register(CallbackCollector(family, name, text, labelled, labels))
