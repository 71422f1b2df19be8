"""A metric whose values are asked for at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

Labelled = Mapping[tuple[str, ...], float]
"""The values of a metric, by those of its labels."""


class Asked(Collector):
    """To be registered; what it asks must be quick."""

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


__all__ = ["Asked", "Labelled"]
