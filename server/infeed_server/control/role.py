"""What a process of TensorFlow's data service shows: its health, and metrics of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from infeed_server.control.asked import Asked, Labelled
from infeed_server.control.health import Readiness

log = logging.getLogger(__name__)


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
        self.registry.register(Asked(CounterMetricFamily, name, text, (), lambda: {(): value()}))

    def gauges(
        self, name: str, text: str, label: str, values: Callable[[], Mapping[str, float]]
    ) -> None:
        """One for each value of a label, as there are at a scrape; it must be quick."""

        def labelled() -> Labelled:
            return {(key,): value for key, value in values().items()}

        self.registry.register(Asked(GaugeMetricFamily, name, text, (label,), labelled))

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Everything, in the form that an HTTP `Accept` header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


__all__ = ["RoleHealth", "RoleMetrics"]
