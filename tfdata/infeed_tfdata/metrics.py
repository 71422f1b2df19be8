"""Metrics whose values are read at every scrape: of a gateway, a dispatcher and a worker."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from infeed_server.observe.callback_metrics import CallbackCollector, LabelledValues
from infeed_server.version import VERSION

Value = Callable[[], float | LabelledValues]
"""Returns the value of a metric, or its values by label. It must be quick."""


def new_registry(role: str) -> CollectorRegistry:
    """Returns a registry with the metrics of any role."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("infeed_build", "The versions of this process.", registry=registry).info(
        {"role": role, "version": VERSION, "tensorflow": version("tensorflow")}
    )
    return registry


def add_gauge(
    registry: CollectorRegistry, name: str, text: str, value: Value, label: str = ""
) -> None:
    """Adds a gauge, with a label or without."""
    labels = (label,) if label else ()
    registry.register(
        CallbackCollector(GaugeMetricFamily, name, text, labels, lambda: _labelled(value()))
    )


def add_counter(registry: CollectorRegistry, name: str, text: str, value: Value) -> None:
    """Adds a counter."""
    registry.register(
        CallbackCollector(CounterMetricFamily, name, text, (), lambda: _labelled(value()))
    )


def _labelled(value: float | LabelledValues) -> LabelledValues:
    return {(): value} if isinstance(value, (int, float)) else value
