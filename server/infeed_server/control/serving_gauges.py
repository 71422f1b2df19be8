"""Gauges of whether trainers can be served: ready pipelines, and the end of the certificate."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from infeed_server.control.collectors import CallbackCollector, LabelledValues, SampledCollector
from infeed_server.control.health import HealthView


class ServingGauges:
    """The gauges, which have no value before `watch_health` and `watch_certificate`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._health: HealthView | None = None
        self._certificate_end: Callable[[], float | None] = lambda: None
        registry.register(
            CallbackCollector(
                GaugeMetricFamily,
                "infeed_pipeline_ready",
                "Whether the pipeline is ready: 1, or 0 for a reason that /readyz names.",
                ("pipeline",),
                self._pipelines,
            )
        )
        self._certificate_gauge = SampledCollector(
            CallbackCollector(
                GaugeMetricFamily,
                "infeed_certificate_expiry_timestamp_seconds",
                "Unix time at which the certificate of --tls-cert expires.",
                (),
                self._certificate,
            )
        )
        registry.register(self._certificate_gauge)

    def update(self) -> None:
        """Reads the end of the certificate. Called every second."""
        self._certificate_gauge.update()

    def watch_health(self, health: HealthView) -> None:
        """Exposes the readiness of each pipeline at every scrape."""
        self._health = health

    def watch_certificate(self, end: Callable[[], float | None]) -> None:
        """Exposes the Unix time that `end` returns at every `update`; None: there is none."""
        self._certificate_end = end

    def _pipelines(self) -> LabelledValues:
        parts = self._health.parts if self._health else {}
        return {(name,): float(each.ready) for name, each in parts.items()}

    def _certificate(self) -> LabelledValues:
        end = self._certificate_end()
        return {} if end is None else {(): end}
