"""Metrics whose values a function returns at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

LabelledValues = Mapping[tuple[str, ...], float]
"""Label values → the value of a metric."""

DESIRED_SERVERS = (
    "infeed_desired_servers",
    "Servers like this one that would feed all connected trainers without waits.",
    (),
)


class CallbackCollector(Collector):
    """A metric whose values a quick function returns at every scrape."""

    def __init__(
        self,
        family: type[CounterMetricFamily | GaugeMetricFamily],
        name: str,
        text: str,
        values: Callable[[], LabelledValues],
        labels: tuple[str, ...] = (),
    ) -> None:
        self._new = partial(family, name, text, labels=labels)
        self._values = values

    def collect(self) -> Iterable[Metric]:
        metric = self._new()
        for labels, value in self._values().items():
            metric.add_metric(labels, value)
        return [metric]

    def describe(self) -> Iterable[Metric]:
        return [self._new()]
