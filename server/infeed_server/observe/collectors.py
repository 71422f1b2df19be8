"""Collector of a metric whose values a function returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

LabelledValues = Mapping[tuple[str, ...], float]
"""Label values → the value of a metric."""


class CallbackCollector(Collector):
    """A metric whose values a quick function returns at every scrape."""

    def __init__(
        self,
        family: type[CounterMetricFamily | GaugeMetricFamily],
        name: str,
        text: str,
        labels: tuple[str, ...],
        values: Callable[[], LabelledValues],
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
