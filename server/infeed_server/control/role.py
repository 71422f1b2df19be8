"""What a process of TensorFlow's data service shows: its health, and metrics of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Gauge, Info, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from infeed_server.control.health import Readiness

log = logging.getLogger(__name__)

Labelled = Mapping[tuple[str, ...], float]
"""The values of a metric, by those of its labels."""


class RoleHealth:
    """Whether the process is ready, and what it knows of others, which makes it no less ready."""

    def __init__(self, role: str, parts: Callable[[], Mapping[str, Readiness]] = dict) -> None:
        self._role = role
        self._parts = parts
        self.overall = Readiness(False, "starting")

    @property
    def parts(self) -> Mapping[str, Readiness]:
        return self._parts()

    def say(self, *, ready: bool, reason: str) -> None:
        """What holds from now on. A change is logged."""
        now = Readiness(ready, reason)
        if now != self.overall:
            self.overall = now
            log.info("%s is %s: %s", self._role, "ready" if ready else "not ready", reason)


class RoleMetrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self, role: str, version: str, tensorflow: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("infeed_build", "The versions of this process.", registry=self.registry).info(
            {"role": role, "version": version, "tensorflow": tensorflow}
        )

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Asks for the value at every scrape; it must be quick."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def counter(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Asks for what was counted elsewhere, at every scrape; it must be quick."""
        self.registry.register(_Asked(CounterMetricFamily, name, text, (), lambda: {(): value()}))

    def gauges(
        self, name: str, text: str, label: str, values: Callable[[], Mapping[str, float]]
    ) -> None:
        """One for each value of a label, as there are at a scrape; it must be quick."""

        def labelled() -> Labelled:
            return {(key,): value for key, value in values().items()}

        self.registry.register(_Asked(GaugeMetricFamily, name, text, (label,), labelled))

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Everything, in the form that an HTTP `Accept` header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class _Asked(Collector):
    """A metric whose values are asked for at every scrape."""

    def __init__(
        self,
        family: type[CounterMetricFamily | GaugeMetricFamily],
        name: str,
        text: str,
        labels: tuple[str, ...],
        values: Callable[[], Labelled],
    ) -> None:
        self._family, self._name, self._text, self._labels = family, name, text, labels
        self._values = values

    def collect(self) -> Iterable[Metric]:
        metric = self._family(self._name, self._text, labels=self._labels)
        for labels, value in self._values().items():
            metric.add_metric(labels, value)
        return [metric]

    def describe(self) -> Iterable[Metric]:
        return [self._family(self._name, self._text, labels=self._labels)]


__all__ = ["RoleHealth", "RoleMetrics"]
