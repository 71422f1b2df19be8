"""The health and metrics of a role of the tf.data service, for its control plane."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from infeed_server.control.health import Readiness
from infeed_server.observe.collectors import CallbackCollector, LabelledValues

log = logging.getLogger(__name__)


class RoleHealth:
    """The readiness of a role, and that of its peers, which does not affect its own."""

    def __init__(self, role: str, parts: Callable[[], Mapping[str, Readiness]] = dict) -> None:
        self._role = role
        self._parts = parts
        self.overall = Readiness(False, "starting")

    @property
    def parts(self) -> Mapping[str, Readiness]:
        return self._parts()

    def set(self, *, ready: bool, reason: str) -> None:
        """Sets the readiness of the role, and logs a change."""
        readiness = Readiness(ready, reason)
        if readiness != self.overall:
            self.overall = readiness
            log.info("%s is %s: %s", self._role, "ready" if ready else "not ready", reason)


class RoleMetrics:
    """The metrics of one role, in a registry of its own. Every callback must be quick."""

    def __init__(self, role: str, version: str, tensorflow: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("infeed_build", "The versions of this process.", registry=self.registry).info(
            {"role": role, "version": version, "tensorflow": tensorflow}
        )

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Adds a gauge whose value is read at every scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def add_counter(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Adds a counter whose value is read at every scrape."""
        self.registry.register(
            CallbackCollector(CounterMetricFamily, name, description, (), lambda: {(): value()})
        )

    def add_labelled_gauge(
        self, name: str, description: str, label: str, values: Callable[[], Mapping[str, float]]
    ) -> None:
        """Adds a gauge with one label, whose values by label are read at every scrape."""

        def labelled() -> LabelledValues:
            return {(key,): value for key, value in values().items()}

        self.registry.register(
            CallbackCollector(GaugeMetricFamily, name, description, (label,), labelled)
        )
